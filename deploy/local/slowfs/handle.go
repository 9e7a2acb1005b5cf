package main

import (
	"context"
	"log"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A handle is one open of a file by a process of this client.
type handle struct {
	client  *client
	id      unix.FileHandle
	file    *file
	fd      int
	epoch   int64
	appends bool
	writes  bool
	synced  bool
}

var (
	_ fs.FileReader   = (*handle)(nil)
	_ fs.FileWriter   = (*handle)(nil)
	_ fs.FileFlusher  = (*handle)(nil)
	_ fs.FileFsyncer  = (*handle)(nil)
	_ fs.FileReleaser = (*handle)(nil)
)

// newHandle takes over the descriptor. The caller's permission has been checked by its kernel (default_permissions).
func (c *client) newHandle(id unix.FileHandle, fd int, flags uint32) (*handle, error) {
	opened := &handle{
		client: c, id: id, file: c.files.acquire(id), fd: fd, epoch: c.epoch.Load(),
		appends: flags&syscall.O_APPEND != 0,
		writes:  flags&syscall.O_ACCMODE != syscall.O_RDONLY,
		synced:  flags&(syscall.O_DSYNC|syscall.O_DIRECT) != 0,
	}
	if err := opened.file.revalidate(fd); err != nil {
		opened.close()
		return nil, err
	}
	return opened, nil
}

func (h *handle) close() {
	h.client.files.release(h.id)
	unix.Close(h.fd)
}

func (h *handle) stale() bool {
	return h.epoch < h.client.epoch.Load()
}

func (h *handle) Read(_ context.Context, buffer []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	if h.stale() {
		return nil, syscall.ESTALE
	}
	count, err := h.file.read(h.fd, buffer, offset)
	return fuse.ReadResultData(buffer[:count]), fs.ToErrno(err)
}

func (h *handle) Write(_ context.Context, data []byte, offset int64) (uint32, syscall.Errno) {
	if h.stale() {
		return 0, syscall.ESTALE
	}
	var err error
	if h.appends { // the kernel's offset comes from a size that it does not revalidate
		err = h.file.append(h.fd, data)
	} else {
		err = h.file.write(h.fd, data, offset)
	}
	if err == nil && h.synced {
		err = h.file.flush()
	}
	if err != nil {
		return 0, fs.ToErrno(err)
	}
	return uint32(len(data)), fs.OK
}

// Flush is called by each close(2). Only a client with something to write needs its server for it.
func (h *handle) Flush(ctx context.Context) syscall.Errno {
	if !h.writes || !h.file.isDirty() {
		return fs.OK
	}
	if caller, known := fuse.FromContext(ctx); known {
		if status := h.client.gate.passToFlush(caller.Pid); !status.Ok() {
			return syscall.Errno(status)
		}
	}
	if h.stale() {
		return syscall.ESTALE
	}
	return fs.ToErrno(h.file.flush())
}

func (h *handle) Fsync(context.Context, uint32) syscall.Errno {
	if h.stale() {
		return syscall.ESTALE
	}
	if err := h.file.flush(); err != nil {
		return fs.ToErrno(err)
	}
	return fs.ToErrno(unix.Fsync(h.fd))
}

// Release comes after the last close, when no caller waits any more.
func (h *handle) Release(context.Context) syscall.Errno {
	if h.writes && h.file.isDirty() {
		h.client.gate.passInBackground()
		if err := h.file.flush(); err != nil {
			log.Printf("data of a closed file is lost: %v", err)
		}
	}
	h.close()
	return fs.OK
}
