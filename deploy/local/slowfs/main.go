// Slowfs shows one directory to several hosts as NFS or Lustre would: each host runs its own instance (a client) over
// the shared backing directory, and what the clients see of each other's changes is late, in the ways in which a network
// file system is late. A file is longer before its new bytes are there; attributes, names and misses are cached; and on
// command everything hangs.
//
// It leaves to the kernel: permissions (default_permissions), the page cache, and locks, which are local to a host as on
// NFS with local_lock=all. Extended attributes are refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const unmountDeadline = 2 * time.Second

type options struct {
	mountpoint, backing, control string
	settings                     *settings
	command                      []string
}

func parseOptions() options {
	chosen := options{settings: newSettings()}
	flag.StringVar(&chosen.mountpoint, "mount", "", "`directory` to mount on")
	flag.StringVar(&chosen.backing, "backing", "", "`directory` to show, shared by all clients; may be the mount point")
	flag.StringVar(&chosen.control, "control", "", "`path` of the control socket")
	flag.Var(&chosen.settings.writeback, "writeback", "how long written data is kept from others")
	flag.Var(&chosen.settings.attr, "attr", "how long attributes are cached")
	flag.Var(&chosen.settings.entry, "entry", "how long names are cached")
	flag.Var(&chosen.settings.negative, "negative", "how long it is cached that a name does not exist")
	flag.Int64Var(&chosen.settings.dirtyLimit, "dirty", chosen.settings.dirtyLimit, "`bytes` kept back at most")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "slowfs -mount DIR -backing DIR -control SOCKET [options]\nslowfs -control SOCKET %s\n", commands)
		flag.PrintDefaults()
	}
	flag.Parse()
	chosen.command = flag.Args()
	return chosen
}

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	if err := run(parseOptions()); err != nil {
		fmt.Fprintln(os.Stderr, "slowfs:", err)
		os.Exit(1)
	}
}

func run(chosen options) error {
	if chosen.control == "" {
		return errors.New("-control is missing; see -help")
	}
	if len(chosen.command) > 0 {
		return send(chosen.control, chosen.command, os.Stdout)
	}
	if chosen.mountpoint == "" || chosen.backing == "" {
		return errors.New("-mount and -backing are both needed, or a command; see -help")
	}
	if isAnswered(chosen.control) {
		return fmt.Errorf("another slowfs answers at %s; end it first", chosen.control)
	}
	if err := removeDeadMounts(chosen.mountpoint); err != nil {
		return fmt.Errorf("repair %s: %w", chosen.mountpoint, err)
	}
	return serve(chosen)
}

// serve mounts, and returns on SIGTERM or SIGINT, or when the file system was unmounted.
func serve(chosen options) error {
	unix.Umask(0)
	backing, err := openBacking(chosen.backing)
	if err != nil {
		return err
	}
	c := newClient(backing, chosen.settings)
	server, err := c.mount(chosen.mountpoint)
	if err != nil {
		return fmt.Errorf("mount on %s: %w", chosen.mountpoint, err)
	}
	listener, err := serveControl(c, chosen.control)
	if err != nil {
		return errors.Join(err, c.unmount(server, chosen.mountpoint, unmountDeadline))
	}
	defer listener.Close()
	log.Printf("%s is served from %s", chosen.mountpoint, chosen.backing)
	return untilEnd(c, server, chosen.mountpoint)
}

func untilEnd(c *client, server *fuse.Server, mountpoint string) error {
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	unmounted := make(chan struct{})
	go func() {
		server.Wait()
		close(unmounted)
	}()
	select {
	case <-ended.Done():
		log.Printf("received a signal, unmounting")
		return c.unmount(server, mountpoint, unmountDeadline)
	case <-unmounted:
		log.Printf("%s was unmounted", mountpoint)
		return c.files.flushAll()
	}
}
