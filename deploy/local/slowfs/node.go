package main

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A node is a file or directory that the kernel knows. It keeps no path: other clients rename at will.
type node struct {
	fs.Inode
	client *client
	id     unix.FileHandle
}

var (
	_ fs.NodeLookuper       = (*node)(nil)
	_ fs.NodeOpener         = (*node)(nil)
	_ fs.NodeCreater        = (*node)(nil)
	_ fs.NodeOpendirHandler = (*node)(nil)
	_ fs.NodeMkdirer        = (*node)(nil)
	_ fs.NodeMknoder        = (*node)(nil)
	_ fs.NodeSymlinker      = (*node)(nil)
	_ fs.NodeReadlinker     = (*node)(nil)
	_ fs.NodeLinker         = (*node)(nil)
	_ fs.NodeUnlinker       = (*node)(nil)
	_ fs.NodeRmdirer        = (*node)(nil)
	_ fs.NodeRenamer        = (*node)(nil)
	_ fs.NodeStatfser       = (*node)(nil)
)

// at calls do with a descriptor that only names this node (O_PATH).
func (n *node) at(do func(fd int) error) syscall.Errno {
	return n.client.backing.at(n.id, do)
}

// inode makes the kernel's view of a file that was found in this directory.
func (n *node) inode(ctx context.Context, found identity, out *fuse.EntryOut) *fs.Inode {
	n.client.describe(&found.stat, out)
	return n.NewInode(ctx, &node{client: n.client, id: found.handle}, found.stable())
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var found identity
	errno := n.at(func(dirfd int) (err error) {
		found, err = n.client.backing.child(dirfd, name)
		return err
	})
	if errno != 0 {
		return nil, errno
	}
	return n.inode(ctx, found, out), fs.OK
}

// Open serves close-to-open: the kernel drops the data that it has cached (no FOPEN_KEEP_CACHE) and learns that its
// attributes are old.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	mode := unix.O_RDONLY
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY {
		mode = unix.O_RDWR
	}
	fd, err := n.client.backing.open(n.id, mode)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	opened, err := n.client.newHandle(n.id, fd, flags)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	n.NotifyContent(-1, 0)
	return opened, 0, fs.OK
}

// Create is called when the name is free in this client's kernel's cache. If another client has taken it, ESTALE
// makes the kernel look again and then check the caller's permission on what is there.
func (n *node) Create(
	ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	var created identity
	var opened *handle
	errno := n.at(func(dirfd int) error {
		fd, err := unix.Openat(dirfd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode&07777)
		if errors.Is(err, syscall.EEXIST) && flags&syscall.O_EXCL == 0 {
			return syscall.ESTALE
		}
		if err != nil {
			return err
		}
		created, opened, err = n.adoptOpened(ctx, dirfd, name, fd, flags)
		return err
	})
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return n.inode(ctx, created, out), opened, 0, fs.OK
}

func (n *node) adoptOpened(ctx context.Context, dirfd int, name string, fd int, flags uint32) (identity, *handle, error) {
	if err := giveToCaller(ctx, dirfd, name); err != nil {
		unix.Close(fd)
		return identity{}, nil, err
	}
	created, err := identify(fd)
	if err != nil {
		unix.Close(fd)
		return identity{}, nil, err
	}
	opened, err := n.client.newHandle(created.handle, fd, flags)
	return created, opened, err
}

// giveToCaller makes the caller the owner of what was just created; in a set-group-id directory the group is right.
func giveToCaller(ctx context.Context, dirfd int, name string) error {
	caller, known := fuse.FromContext(ctx)
	if !known {
		return syscall.EIO
	}
	var directory syscall.Stat_t
	if err := syscall.Fstat(dirfd, &directory); err != nil {
		return err
	}
	group := int(caller.Gid)
	if directory.Mode&syscall.S_ISGID != 0 {
		group = -1
	}
	return unix.Fchownat(dirfd, name, int(caller.Uid), group, unix.AT_SYMLINK_NOFOLLOW)
}

// add creates a name by make, gives it to the caller, and tells the kernel of it.
func (n *node) add(
	ctx context.Context, name string, out *fuse.EntryOut, create func(dirfd int) error,
) (*fs.Inode, syscall.Errno) {
	var created identity
	errno := n.at(func(dirfd int) (err error) {
		if err = create(dirfd); err != nil {
			return err
		}
		if err = giveToCaller(ctx, dirfd, name); err != nil {
			return err
		}
		created, err = n.client.backing.child(dirfd, name)
		return err
	})
	if errno != 0 {
		return nil, errno
	}
	return n.inode(ctx, created, out), fs.OK
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, out, func(dirfd int) error { return unix.Mkdirat(dirfd, name, mode) })
}

func (n *node) Mknod(
	ctx context.Context, name string, mode, device uint32, out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, out, func(dirfd int) error { return unix.Mknodat(dirfd, name, mode, int(device)) })
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, name, out, func(dirfd int) error { return unix.Symlinkat(target, dirfd, name) })
}

func (n *node) Readlink(context.Context) ([]byte, syscall.Errno) {
	target := make([]byte, unix.PathMax)
	var length int
	errno := n.at(func(fd int) (err error) {
		length, err = unix.Readlinkat(fd, "", target)
		return err
	})
	return target[:length], errno
}

// Link gives the same inode another name.
func (n *node) Link(
	ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut,
) (*fs.Inode, syscall.Errno) {
	linked := target.(*node)
	fd, err := n.client.backing.open(linked.id, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	defer unix.Close(fd)
	errno := n.at(func(dirfd int) error {
		if err := unix.Linkat(fd, "", dirfd, name, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
		found, err := identify(fd)
		n.client.describe(&found.stat, out)
		return err
	})
	return linked.EmbeddedInode(), errno
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.at(func(dirfd int) error { return unix.Unlinkat(dirfd, name, 0) })
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.at(func(dirfd int) error { return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR) })
}

func (n *node) Rename(
	_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	destination := newParent.(*node)
	destfd, err := n.client.backing.open(destination.id, unix.O_PATH)
	if err != nil {
		return fs.ToErrno(err)
	}
	defer unix.Close(destfd)
	return n.at(func(dirfd int) error { return unix.Renameat2(dirfd, name, destfd, newName, uint(flags)) })
}

func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fd, err := n.client.backing.open(n.id, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	entries, errno := fs.NewLoopbackDirStreamFd(fd)
	return entries, 0, errno
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(n.client.backing.dirfd, &stat); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStatfsT(&stat)
	return fs.OK
}
