package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const killedPollInterval = 50 * time.Millisecond

// A gate stands between this client and its server: open, slow, or closed ("hang") as for an NFS server that has gone.
type gate struct {
	mu      sync.Mutex
	passage chan struct{} // closed while operations may pass
	delay   setting
	waiting atomic.Int64
}

func newGate() *gate {
	passage := make(chan struct{})
	close(passage)
	return &gate{passage: passage}
}

func (g *gate) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.hanging() {
		g.passage = make(chan struct{})
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hanging() {
		close(g.passage)
	}
}

// hanging is asked with the lock held.
func (g *gate) hanging() bool {
	select {
	case <-g.passage:
		return false
	default:
		return true
	}
}

func (g *gate) state() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hanging() {
		return "hanging"
	}
	return "serving"
}

func (g *gate) current() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passage
}

// pass returns when the operation may go on to the server. As with an NFS hard mount only a SIGKILL ends the wait: the
// kernel tells once of any signal (by closing cancelled), from then on it is checked whether the caller was killed.
func (g *gate) pass(cancelled <-chan struct{}, pid uint32) fuse.Status {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	time.Sleep(g.delay.get())
	passage := g.current()
	select {
	case <-passage:
		return fuse.OK
	case <-cancelled:
		return passUnlessKilled(passage, pid)
	}
}

// passUnlessKilled is for waits of which the kernel will not tell (any more) that they are to end.
func passUnlessKilled(passage <-chan struct{}, pid uint32) fuse.Status {
	poll := time.NewTicker(killedPollInterval)
	defer poll.Stop()
	for {
		select {
		case <-passage:
			return fuse.OK
		case <-poll.C:
			if killed(pid) {
				return fuse.EINTR
			}
		}
	}
}

// passToFlush is pass for a close. A process that was killed closes its files without a signal that the file system
// could see, and must not be kept from dying. (Nor is one that exits by itself: the two look the same from outside.)
func (g *gate) passToFlush(pid uint32) fuse.Status {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	time.Sleep(g.delay.get())
	return passUnlessKilled(g.current(), pid)
}

// passInBackground is for the client's own write-back, which cannot be interrupted.
func (g *gate) passInBackground() {
	<-g.current()
}

// killed says whether the thread has a pending SIGKILL, is exiting, or is no more. 0 is the kernel itself.
// Nothing but /proc/<pid>/status may be read here: /proc/<pid>/stat waits for an exec to end (seen on Linux 6.18), and
// the exec may be waiting for our answer, since it closes files.
func killed(pid uint32) bool {
	if pid == 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || isEnding(string(status))
}

// isEnding: a process gives up its memory before its files, so one that has no program in memory is closing them for
// good; or it is in the middle of an exec, and while that waits, each reader of its /proc/<pid>/stat (ps is one) waits too.
func isEnding(status string) bool {
	hasProgram := false
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "VmExe":
			hasProgram = value != "0 kB"
		case "SigPnd", "ShdPnd":
			signals, err := strconv.ParseUint(value, 16, 64)
			if err == nil && signals&(1<<(uint(syscall.SIGKILL)-1)) != 0 {
				return true
			}
		}
	}
	return !hasProgram
}
