package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays three parts: the tests as they are called; the same in a private mount namespace; and slowfs
// itself, so that each client is a process of its own that can be measured and killed.
const (
	asSlowfs    = "SLOWFS_TEST_AS_SLOWFS"
	inNamespace = "SLOWFS_TEST_IN_NAMESPACE"
)

const (
	patience = 20 * time.Second
	alice    = 2001
	bob      = 2002
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asSlowfs) != "":
		main()
	case os.Getenv(inNamespace) != "":
		os.Exit(m.Run())
	case os.Geteuid() != 0:
		fmt.Println("these tests mount file systems: run them as root")
		os.Exit(1)
	default:
		os.Exit(againInNamespace())
	}
}

func againInNamespace() int {
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), inNamespace+"=1")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := again.Run(); err != nil && again.ProcessState == nil {
		fmt.Println(err)
		return 1
	}
	return again.ProcessState.ExitCode()
}

// An instance is one client: a slowfs process and its mount point.
type instance struct {
	t       *testing.T
	dir     string
	socket  string
	backing string
	process *exec.Cmd
}

// Settings of a client whose caches never expire, or that caches nothing; data is written back by a close only.
var (
	caching = []string{"-attr", "1h", "-entry", "1h", "-negative", "1h", "-writeback", "1h"}
	prompt  = []string{"-attr", "0s", "-entry", "0s", "-negative", "0s", "-writeback", "1h"}
)

func newBacking(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "slowfs-test-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	backing := filepath.Join(dir, "backing")
	must(t, os.Mkdir(backing, 0o777))
	must(t, os.Chmod(backing, 0o777))
	return backing
}

func start(t *testing.T, backing, name string, settings []string) *instance {
	t.Helper()
	i := &instance{t: t, backing: backing}
	i.dir = filepath.Join(filepath.Dir(backing), name)
	i.socket = i.dir + ".sock"
	must(t, os.MkdirAll(i.dir, 0o755))
	i.launch(settings)
	t.Cleanup(i.end)
	return i
}

// twoClients see one directory; the first one's caches matter only for its own changes.
func twoClients(t *testing.T, settingsOfReader []string) (writer, reader *instance) {
	t.Helper()
	backing := newBacking(t)
	return start(t, backing, "writer", prompt), start(t, backing, "reader", settingsOfReader)
}

func (i *instance) launch(settings []string) {
	i.t.Helper()
	arguments := append([]string{"-mount", i.dir, "-backing", i.backing, "-control", i.socket}, settings...)
	i.process = exec.Command("/proc/self/exe", arguments...)
	i.process.Env = append(os.Environ(), asSlowfs+"=1")
	i.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(i.t, i.process.Start())
	eventually(i.t, "slowfs answers", func() bool { return isAnswered(i.socket) })
}

func (i *instance) end() {
	if i.process.ProcessState == nil {
		i.process.Process.Signal(syscall.SIGTERM)
		i.process.Wait()
	}
	syscall.Unmount(i.dir, syscall.MNT_DETACH)
}

func (i *instance) path(name string) string { return filepath.Join(i.dir, name) }

func (i *instance) tell(words ...string) string {
	i.t.Helper()
	var answer bytes.Buffer
	must(i.t, send(i.socket, words, &answer))
	return strings.TrimSpace(answer.String())
}

// status is one number or word of the status line.
func (i *instance) status(name string) string {
	i.t.Helper()
	for _, field := range strings.Fields(i.tell("status")) {
		if key, value, _ := strings.Cut(field, "="); key == name {
			return value
		}
	}
	i.t.Fatalf("the status line has no %s", name)
	return ""
}

func (i *instance) open(name string, flags int) *os.File {
	i.t.Helper()
	file, err := os.OpenFile(i.path(name), flags, 0o644)
	must(i.t, err)
	i.t.Cleanup(func() { file.Close() })
	return file
}

func (i *instance) write(name, text string) {
	i.t.Helper()
	must(i.t, os.WriteFile(i.path(name), []byte(text), 0o644))
}

func (i *instance) expect(name, text string) {
	i.t.Helper()
	got, err := os.ReadFile(i.path(name))
	must(i.t, err)
	if string(got) != text {
		i.t.Fatalf("%s is %q, expected %q", i.path(name), got, text)
	}
}

func (i *instance) size(name string) int64 {
	i.t.Helper()
	stat, err := os.Stat(i.path(name))
	must(i.t, err)
	return stat.Size()
}

func (i *instance) missing(name string) bool {
	_, err := os.Lstat(i.path(name))
	return errors.Is(err, os.ErrNotExist)
}

func (i *instance) memoryMiB() int {
	i.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.process.Process.Pid))
	must(i.t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	must(i.t, err)
	return kib / 1024
}

// shell runs a command line as a user and returns what it printed.
func shell(t *testing.T, uid uint32, line string) (string, error) {
	t.Helper()
	command := shellCommand(t, uid, line)
	out, err := command.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func shellCommand(t *testing.T, uid uint32, line string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return command
}

func writeTo(t *testing.T, file *os.File, text string) {
	t.Helper()
	_, err := file.WriteString(text)
	must(t, err)
}

// at reads without the file's position, as a follower of a log does.
func at(t *testing.T, file *os.File, offset int64, length int) string {
	t.Helper()
	buffer := make([]byte, length)
	count, err := file.ReadAt(buffer, offset)
	if count == 0 && err != nil && err.Error() != "EOF" {
		t.Fatal(err)
	}
	return string(buffer[:count])
}

func expectText(t *testing.T, what, got, expected string) {
	t.Helper()
	if got != expected {
		t.Fatalf("%s: %q, expected %q", what, got, expected)
	}
}

func expectError(t *testing.T, what string, err, expected error) {
	t.Helper()
	if !errors.Is(err, expected) {
		t.Fatalf("%s: %v, expected %v", what, err, expected)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that happens by itself.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if happened() {
			return
		}
	}
	t.Fatalf("not seen in %s: %s", patience, what)
}
