package main

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// removeDeadMounts takes away what killed instances left on the mount point. Nothing is asked of the mount itself: one
// that hangs would not answer. Who calls this has seen that no instance answers any more.
func removeDeadMounts(mountpoint string) error {
	for {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		if !isSlowfs(string(mounts), mountpoint) {
			return nil
		}
		if err := unix.Unmount(mountpoint, unix.MNT_DETACH); err != nil {
			return err
		}
	}
}

// isSlowfs says whether the topmost mount on the path is one of ours, by the text of proc_pid_mountinfo(5).
func isSlowfs(mountinfo, path string) bool {
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	topmost := ""
	for line := range strings.Lines(mountinfo) {
		mount, source, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(mount), strings.Fields(source)
		if len(fields) > 4 && len(kind) > 0 && fields[4] == escaped {
			topmost = kind[0]
		}
	}
	return topmost == "fuse.slowfs"
}
