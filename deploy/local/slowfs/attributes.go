package main

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

var (
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
)

// Getattr prefers the descriptor of an open file, which also works after the file was unlinked.
func (n *node) Getattr(_ context.Context, file fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	var stat syscall.Stat_t
	var errno syscall.Errno
	if opened, ok := file.(*handle); ok && !opened.stale() {
		errno = fs.ToErrno(syscall.Fstat(opened.fd, &stat))
	} else {
		errno = n.at(func(fd int) error { return syscall.Fstat(fd, &stat) })
	}
	out.Attr.FromStat(&stat)
	out.SetTimeout(n.client.settings.attr.get())
	return errno
}

// Setattr writes back first, as NFS does, so that a later write-back does not undo the times that are set here.
func (n *node) Setattr(
	ctx context.Context, file fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut,
) syscall.Errno {
	if errno := n.settle(file, in); errno != 0 {
		return errno
	}
	if errno := n.withDescriptor(file, func(fd int) error { return change(fd, in) }); errno != 0 {
		return errno
	}
	return n.Getattr(ctx, file, out)
}

// withDescriptor is at, but for a file that may be open and unlinked.
func (n *node) withDescriptor(file fs.FileHandle, do func(fd int) error) syscall.Errno {
	if opened, ok := file.(*handle); ok {
		return fs.ToErrno(do(opened.fd))
	}
	return n.at(do)
}

// settle brings the file's data to where the change expects it: cut to a new size, or written back.
func (n *node) settle(opened fs.FileHandle, in *fuse.SetAttrIn) syscall.Errno {
	if n.StableAttr().Mode != syscall.S_IFREG {
		return fs.OK
	}
	kept := n.client.files.acquire(n.id)
	defer n.client.files.release(n.id)
	size, resized := in.GetSize()
	if !resized {
		return fs.ToErrno(kept.flush())
	}
	if open, ok := opened.(*handle); ok && open.writes {
		return fs.ToErrno(kept.truncate(open.fd, int64(size)))
	}
	fd, err := n.client.backing.open(n.id, unix.O_WRONLY)
	if err != nil {
		return fs.ToErrno(err)
	}
	defer unix.Close(fd)
	return fs.ToErrno(kept.truncate(fd, int64(size)))
}

// change sets the owner first, since that clears the set-id bits, and the times last.
func change(fd int, in *fuse.SetAttrIn) error {
	if err := changeOwner(fd, in); err != nil {
		return err
	}
	if mode, ok := in.GetMode(); ok {
		if err := unix.Chmod(procPath(fd), mode&07777); err != nil {
			return err
		}
	}
	return changeTimes(fd, in)
}

func changeOwner(fd int, in *fuse.SetAttrIn) error {
	owner, group := -1, -1
	if uid, ok := in.GetUID(); ok {
		owner = int(uid)
	}
	if gid, ok := in.GetGID(); ok {
		group = int(gid)
	}
	if owner == -1 && group == -1 {
		return nil
	}
	return unix.Fchownat(fd, "", owner, group, unix.AT_EMPTY_PATH)
}

func changeTimes(fd int, in *fuse.SetAttrIn) error {
	accessed, setAccessed := in.GetATime()
	modified, setModified := in.GetMTime()
	if !setAccessed && !setModified {
		return nil
	}
	times := []unix.Timespec{timespec(accessed, setAccessed), timespec(modified, setModified)}
	return unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
}

func timespec(at time.Time, given bool) unix.Timespec {
	if !given {
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	return unix.NsecToTimespec(at.UnixNano())
}
