package main

import (
	"fmt"
	"hash/fnv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"
)

// A backing is the directory that all clients share. Its files are addressed by the kernel's file handles, as an NFS
// server does it: a handle survives renames by other clients, turns into ESTALE when the file is gone, and costs no
// open descriptor. It also lets a client be mounted over the very directory that it serves.
type backing struct {
	dirfd int
	root  identity
}

// An identity is one file of the backing directory, as found by its name or by its descriptor.
type identity struct {
	handle unix.FileHandle
	stat   syscall.Stat_t
}

func openBacking(dir string) (*backing, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the backing directory %s: %w", dir, err)
	}
	root, err := identify(fd)
	if err != nil {
		return nil, fmt.Errorf("the file system of %s must give out file handles, as ext4, XFS and tmpfs do: %w", dir, err)
	}
	return &backing{dirfd: fd, root: root}, nil
}

func identify(fd int) (identity, error) {
	var found identity
	if err := syscall.Fstat(fd, &found.stat); err != nil {
		return found, err
	}
	handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	found.handle = handle
	return found, err
}

// open makes a descriptor for a file; ESTALE when the file no longer exists.
func (b *backing) open(handle unix.FileHandle, flags int) (int, error) {
	return unix.OpenByHandleAt(b.dirfd, handle, flags|unix.O_CLOEXEC)
}

// at calls do with a descriptor that only names the file (O_PATH).
func (b *backing) at(handle unix.FileHandle, do func(fd int) error) syscall.Errno {
	fd, err := b.open(handle, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return fs.ToErrno(err)
	}
	defer unix.Close(fd)
	return fs.ToErrno(do(fd))
}

// child identifies a name in a directory. Like an NFS server it does not cross into other file systems.
func (b *backing) child(dirfd int, name string) (identity, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return identity{}, err
	}
	defer unix.Close(fd)
	found, err := identify(fd)
	if err == nil && found.stat.Dev != b.root.stat.Dev {
		return found, syscall.EXDEV
	}
	return found, err
}

// stable tells the kernel which file this is; the generation tells apart files that had the same inode number.
func (i *identity) stable() fs.StableAttr {
	generation := fnv.New64a()
	generation.Write(i.handle.Bytes())
	return fs.StableAttr{Mode: i.stat.Mode, Ino: i.stat.Ino, Gen: generation.Sum64()}
}

// procPath names a descriptor in system calls that want a path and follow it.
func procPath(fd int) string {
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}
