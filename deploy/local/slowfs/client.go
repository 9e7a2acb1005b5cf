package main

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A client is one host's view of the backing directory: what its kernel may cache, and what it has not written back.
type client struct {
	backing  *backing
	settings *settings
	gate     *gate
	files    *files
	epoch    atomic.Int64 // handles opened in an earlier epoch are stale
}

// settings may be changed while the file system is mounted.
type settings struct {
	attr, entry, negative, writeback setting
	dirtyLimit                       int64
}

// A setting is a duration; it also is a flag.Value.
type setting struct{ nanoseconds atomic.Int64 }

func (s *setting) get() time.Duration { return time.Duration(s.nanoseconds.Load()) }

func (s *setting) String() string { return s.get().String() }

func (s *setting) Set(text string) error {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if duration < 0 {
		return syscall.ERANGE
	}
	s.nanoseconds.Store(int64(duration))
	return nil
}

// newSettings are the shortest times that Linux's NFS client caches attributes, and a write-back that one can see.
func newSettings() *settings {
	defaults := &settings{dirtyLimit: 32 << 20}
	for _, cache := range []*setting{&defaults.attr, &defaults.entry, &defaults.negative} {
		cache.nanoseconds.Store(int64(3 * time.Second))
	}
	defaults.writeback.nanoseconds.Store(int64(500 * time.Millisecond))
	return defaults
}

func newClient(backing *backing, settings *settings) *client {
	made := &client{backing: backing, settings: settings, gate: newGate()}
	made.files = &files{client: made, opened: make(map[string]*file)}
	return made
}

// mount starts to serve; the returned server ends when the mount point is unmounted.
func (c *client) mount(mountpoint string) (*fuse.Server, error) {
	rootAttr := c.backing.root.stable()
	root := &node{client: c, id: c.backing.root.handle}
	bridge := fs.NewNodeFS(root, &fs.Options{NullPermissions: true, RootStableAttr: &rootAttr})
	server, err := fuse.NewServer(&gated{bridge, c.gate, c.settings}, mountpoint, &fuse.MountOptions{
		AllowOther:           true,
		Options:              []string{"default_permissions"},
		FsName:               "slowfs",
		Name:                 "slowfs",
		DirectMountStrict:    true,
		DisableXAttrs:        true,
		DisabledCapabilities: fuse.CAP_READDIRPLUS | fuse.CAP_PASSTHROUGH,
		MaxWrite:             1 << 20,
	})
	if err != nil {
		return nil, err
	}
	go server.Serve()
	return server, server.WaitMount()
}

// unmount takes the mount away from new users, writes everything back, and lets those who still use it go on until the
// deadline; then the process may end and leave them with ENOTCONN.
func (c *client) unmount(server *fuse.Server, mountpoint string, deadline time.Duration) error {
	c.gate.resume()
	if err := unix.Unmount(mountpoint, unix.MNT_DETACH); err != nil {
		return err
	}
	err := c.files.flushAll()
	ended := make(chan struct{})
	go func() {
		server.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
	}
	return err
}

// describe fills what the kernel learns of a file, and for how long it may cache that.
func (c *client) describe(stat *syscall.Stat_t, out *fuse.EntryOut) {
	out.Attr.FromStat(stat)
	out.SetAttrTimeout(c.settings.attr.get())
	out.SetEntryTimeout(c.settings.entry.get())
}
