package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// files are the files that this client has open, by file handle.
type files struct {
	client     *client
	dirtyBytes atomic.Int64

	mu     sync.Mutex
	opened map[string]*file
}

func keyOf(handle unix.FileHandle) string {
	return string(handle.Bytes())
}

func (f *files) acquire(handle unix.FileHandle) *file {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyOf(handle)
	opened := f.opened[key]
	if opened == nil {
		opened = &file{client: f.client}
		f.opened[key] = opened
	}
	opened.opens++
	return opened
}

func (f *files) release(handle unix.FileHandle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyOf(handle)
	f.opened[key].opens--
	if f.opened[key].opens == 0 {
		delete(f.opened, key)
	}
}

// all is for acts on everything that is open; a snapshot, since these acts wait for the disk.
func (f *files) all() []*file {
	f.mu.Lock()
	defer f.mu.Unlock()
	opened := make([]*file, 0, len(f.opened))
	for _, file := range f.opened {
		opened = append(opened, file)
	}
	return opened
}

func (f *files) flushAll() error {
	var failures []error
	for _, file := range f.all() {
		failures = append(failures, file.flush())
	}
	return errors.Join(failures...)
}

func (f *files) discardAll() {
	for _, file := range f.all() {
		file.discard()
	}
}

func toErrno(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
