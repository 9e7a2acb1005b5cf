package main

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const coalesceLimit = 1 << 20

// A file is one client's view of a file that it has open: the data not yet written back, and the size as far as this
// client has seen it. All handles of this client share it.
type file struct {
	client *client

	mu       sync.Mutex
	opens    int // guarded by files.mu
	dirty    []extent
	timer    *time.Timer
	failure  syscall.Errno // of a write-back without a waiting caller; returned once, by the next flush or fsync
	end      int64
	endKnown time.Time
}

// An extent is data that others see as NULs until it is written, through the descriptor of the handle that it came by.
type extent struct {
	fd     int
	offset int64
	data   []byte
}

func (e *extent) end() int64 {
	return e.offset + int64(len(e.data))
}

// write makes the file longer at once and keeps the data back; the writer that fills the client's buffer pays for emptying it.
func (f *file) write(fd int, data []byte, offset int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writeLocked(fd, data, offset)
}

// append writes at the end that this client knows of, which as on NFS may be behind what others have written.
func (f *file) append(fd int, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.endKnown) >= f.client.settings.attr.get() {
		if err := f.learnEnd(fd); err != nil {
			return err
		}
	}
	return f.writeLocked(fd, data, f.end)
}

func (f *file) writeLocked(fd int, data []byte, offset int64) error {
	end := offset + int64(len(data))
	// Unlike ftruncate this can never shorten a file that another client has made longer meanwhile.
	if err := unix.Fallocate(fd, 0, offset, int64(len(data))); err != nil {
		return err
	}
	f.end = max(f.end, end)
	f.keepBack(fd, data, offset)
	writeback := f.client.settings.writeback.get()
	if writeback == 0 || f.client.files.dirtyBytes.Load() > f.client.settings.dirtyLimit {
		f.writeBack()
		return f.tellFailure()
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(writeback, f.writeBackLater)
	}
	return nil
}

func (f *file) keepBack(fd int, data []byte, offset int64) {
	f.client.files.dirtyBytes.Add(int64(len(data)))
	if last := len(f.dirty) - 1; last >= 0 {
		previous := &f.dirty[last]
		if previous.fd == fd && previous.end() == offset && len(previous.data)+len(data) <= coalesceLimit {
			previous.data = append(previous.data, data...)
			return
		}
	}
	f.dirty = append(f.dirty, extent{fd: fd, offset: offset, data: append([]byte(nil), data...)})
}

func (f *file) writeBackLater() {
	f.client.gate.passInBackground()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeBack()
}

// writeBack is called with the lock held.
func (f *file) writeBack() {
	for _, extent := range f.dirty {
		if err := writeAll(extent.fd, extent.data, extent.offset); err != nil {
			f.failure = toErrno(err)
		}
	}
	f.forgetDirty()
}

func (f *file) forgetDirty() {
	for _, extent := range f.dirty {
		f.client.files.dirtyBytes.Add(-int64(len(extent.data)))
	}
	f.dirty = nil
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

func writeAll(fd int, data []byte, offset int64) error {
	for len(data) > 0 {
		written, err := unix.Pwrite(fd, data, offset)
		if err != nil {
			return err
		}
		data, offset = data[written:], offset+int64(written)
	}
	return nil
}

func (f *file) tellFailure() error {
	if failure := f.failure; failure != 0 {
		f.failure = 0
		return failure
	}
	return nil
}

// flush writes back and tells what went wrong since the last time.
func (f *file) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeBack()
	return f.tellFailure()
}

func (f *file) discard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetDirty()
}

func (f *file) isDirty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.dirty) > 0 || f.failure != 0
}

// read gives what the backing file has, and over it what this client has not yet written back.
func (f *file) read(fd int, buffer []byte, offset int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count, err := unix.Pread(fd, buffer, offset)
	if err != nil {
		return 0, err
	}
	for _, extent := range f.dirty {
		count = max(count, extent.overlay(buffer, offset, count))
	}
	return count, nil
}

// overlay copies what falls into a buffer that was read at the offset, and returns how much of the buffer counts now.
func (e *extent) overlay(buffer []byte, offset int64, count int) int {
	from := max(e.offset, offset)
	until := min(e.end(), offset+int64(len(buffer)))
	if from >= until {
		return count
	}
	if gap := from - offset; int64(count) < gap {
		clear(buffer[count:gap])
	}
	copy(buffer[from-offset:until-offset], e.data[from-e.offset:])
	return int(until - offset)
}

// truncate cuts the file and what is kept back for it.
func (f *file) truncate(fd int, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.dirty[:0]
	for _, extent := range f.dirty {
		length := min(int64(len(extent.data)), max(0, size-extent.offset))
		f.client.files.dirtyBytes.Add(length - int64(len(extent.data)))
		extent.data = extent.data[:length]
		if length > 0 {
			kept = append(kept, extent)
		}
	}
	f.dirty = kept
	f.end, f.endKnown = size, time.Now()
	return unix.Ftruncate(fd, size)
}

// learnEnd is called with the lock held.
func (f *file) learnEnd(fd int) error {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return err
	}
	f.end, f.endKnown = stat.Size, time.Now()
	return nil
}

// revalidate asks the server for the end of the file, as every open does (close-to-open).
func (f *file) revalidate(fd int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.learnEnd(fd)
}
