package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waits starts a command line as root that is to be held up, and returns when it is.
func waits(t *testing.T, i *instance, line string) *exec.Cmd {
	t.Helper()
	command := shellCommand(t, 0, line)
	must(t, command.Start())
	eventually(t, "the operation waits", func() bool { return i.status("waiting") == "1" })
	return command
}

func TestAHangHoldsEveryOperationUntilResume(t *testing.T) {
	client, _ := twoClients(t, prompt)
	client.write("log", "text")
	for name, line := range map[string]string{
		"stat": "stat log", "read": "cat log", "write": "echo x > new", "list": "ls .", "create": "mkdir dir",
		"remove": "rm log", "rename": "mv new newer", "statfs": "df .",
	} {
		t.Run(name, func(t *testing.T) {
			client.tell("hang")
			command := waits(t, client, "cd "+client.dir+" && "+line)
			client.tell("resume")
			command.Wait()
			if client.status("waiting") != "0" {
				t.Fatal("something still waits")
			}
		})
	}
}

func TestOtherClientsGoOnWhileOneHangs(t *testing.T) {
	client, other := twoClients(t, prompt)
	other.write("log", "text")
	client.tell("hang")
	other.expect("log", "text")
	client.tell("resume")
	client.expect("log", "text")
}

func TestASignalThatAProcessHandlesDoesNotEndItsWait(t *testing.T) {
	client, _ := twoClients(t, prompt)
	client.write("log", "text")
	client.tell("hang")
	command := waits(t, client, "trap : TERM; read line < "+client.path("log"))
	must(t, command.Process.Signal(syscall.SIGTERM))
	time.Sleep(3 * killedPollInterval)
	if client.status("waiting") != "1" {
		t.Fatal("SIGTERM ended the wait")
	}
	must(t, command.Process.Kill())
	must(t, exited(command))
	if client.status("state") != "hanging" {
		t.Fatal("the hang is over")
	}
	eventually(t, "nothing waits", func() bool { return client.status("waiting") == "0" })
}

// exited waits for the end of a command that was killed.
func exited(command *exec.Cmd) error {
	command.Wait()
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return os.ErrInvalid
	}
	return nil
}

func TestAKilledWriterDiesWhileItsDataWaits(t *testing.T) {
	client, other := twoClients(t, prompt)
	command := writerThatStays(t, client)
	client.tell("hang")
	must(t, command.Process.Kill())
	must(t, exited(command))
	client.tell("resume")
	eventually(t, "the data", func() bool {
		text, _ := os.ReadFile(other.path("log"))
		return string(text) == "kept"
	})
}

// writerThatStays has written without closing: dd keeps its output open while it waits for more input.
func writerThatStays(t *testing.T, i *instance) *exec.Cmd {
	t.Helper()
	command := shellCommand(t, 0, "exec dd status=none bs=4 of="+i.path("log"))
	input, err := command.StdinPipe()
	must(t, err)
	must(t, command.Start())
	_, err = input.Write([]byte("kept"))
	must(t, err)
	eventually(t, "the write", func() bool { return i.status("dirty") == "4" })
	return command
}

// An exec closes files while it holds a lock that every reader of the process's /proc/<pid>/stat waits for.
func TestAnExecIsNotHeldUp(t *testing.T) {
	client, other := twoClients(t, prompt)
	log := client.open("log", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "kept")
	client.tell("hang")
	lest := time.AfterFunc(patience, func() { client.process.Process.Kill() })
	defer lest.Stop()
	_, err := shell(t, 0, "true") // the child has the file open until its exec
	must(t, err)
	expectText(t, "kept back", client.status("dirty"), "4")
	client.tell("resume")
	must(t, log.Close())
	other.expect("log", "kept")
}

func TestACloseOfAWrittenFileWaits(t *testing.T) {
	client, _ := twoClients(t, prompt)
	log := client.open("log", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "text")
	client.tell("hang")
	closed := make(chan error)
	go func() { closed <- log.Close() }()
	eventually(t, "the close waits", func() bool { return client.status("waiting") == "1" })
	time.Sleep(3 * killedPollInterval)
	expectText(t, "waiting", client.status("waiting"), "1")
	client.tell("resume")
	must(t, <-closed)
}

func TestACloseOfAReadFileDoesNotNeedTheServer(t *testing.T) {
	client, _ := twoClients(t, prompt)
	client.write("log", "text")
	file := client.open("log", os.O_RDONLY)
	client.tell("hang")
	must(t, file.Close())
	client.tell("resume")
}

func TestDataIsNotWrittenBackWhileHanging(t *testing.T) {
	client, other := twoClients(t, prompt)
	client.tell("writeback", "1ms")
	log := client.open("log", os.O_CREATE|os.O_WRONLY)
	client.tell("hang")
	written := make(chan error)
	go func() {
		_, err := log.WriteString("late")
		written <- err
	}()
	eventually(t, "the write waits", func() bool { return client.status("waiting") == "1" })
	other.expect("log", "")
	client.tell("resume")
	must(t, <-written)
	eventually(t, "the data", func() bool {
		text, _ := os.ReadFile(other.path("log"))
		return string(text) == "late"
	})
}

func TestOpenFilesBecomeStale(t *testing.T) {
	client, _ := twoClients(t, prompt)
	client.write("log", "text")
	file := client.open("log", os.O_RDWR)
	client.tell("stale")
	_, err := file.ReadAt(make([]byte, 4), 0)
	expectError(t, "read", err, syscall.ESTALE)
	_, err = file.WriteString("more")
	expectError(t, "write", err, syscall.ESTALE)
	expectError(t, "fsync", file.Sync(), syscall.ESTALE)
	client.expect("log", "text")
}

func TestARemovedFileIsStaleForWhoKnowsItOnlyByName(t *testing.T) {
	writer, reader := twoClients(t, caching)
	writer.write("log", "text")
	reader.size("log")
	must(t, os.Remove(writer.path("log")))
	if size := reader.size("log"); size != 4 {
		t.Fatalf("%d bytes, expected the cached 4", size)
	}
	_, err := os.Open(reader.path("log"))
	expectError(t, "open", err, os.ErrNotExist)
}

func TestADelaySlowsEachOperation(t *testing.T) {
	client, _ := twoClients(t, prompt)
	client.write("log", "text")
	client.tell("delay", "50ms")
	before := time.Now()
	client.expect("log", "text")
	if taken := time.Since(before); taken < 100*time.Millisecond {
		t.Fatalf("a lookup, an open and a read took %s", taken)
	}
}

func TestAKilledInstanceIsRepairedByTheNext(t *testing.T) {
	client, other := twoClients(t, prompt)
	client.write("log", "text")
	must(t, client.process.Process.Kill())
	client.process.Wait()
	_, err := os.Stat(client.dir)
	expectError(t, "stat", err, syscall.ENOTCONN)
	client.launch(prompt)
	client.expect("log", "text")
	other.expect("log", "text")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if count := strings.Count(string(mounts), " "+client.dir+" "); count != 1 {
		t.Fatalf("%d mounts on %s, expected 1", count, client.dir)
	}
}

func TestAKilledInstanceLosesWhatItKeptBack(t *testing.T) {
	client, other := twoClients(t, prompt)
	writeTo(t, client.open("log", os.O_CREATE|os.O_WRONLY), "lost")
	must(t, client.process.Process.Kill())
	client.process.Wait()
	other.expect("log", "\x00\x00\x00\x00")
}

func TestTheEndOfAnInstanceWritesBackAndUnmounts(t *testing.T) {
	client, other := twoClients(t, prompt)
	writeTo(t, client.open("log", os.O_CREATE|os.O_WRONLY), "kept")
	must(t, client.process.Process.Signal(syscall.SIGTERM))
	must(t, client.process.Wait())
	other.expect("log", "kept")
	entries, err := os.ReadDir(client.dir)
	must(t, err)
	if len(entries) != 0 {
		t.Fatal("the mount is still there")
	}
}

func TestASecondInstanceOnTheSameMountPointIsRefused(t *testing.T) {
	client, _ := twoClients(t, prompt)
	second := exec.Command("/proc/self/exe", "-mount", client.dir, "-backing", client.backing, "-control", client.socket)
	second.Env = append(os.Environ(), asSlowfs+"=1")
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another slowfs answers") {
		t.Fatalf("%v: %s", err, out)
	}
	client.write("log", "text")
}

func TestADirectoryCanBeMountedOverItself(t *testing.T) {
	backing := newBacking(t)
	must(t, os.WriteFile(filepath.Join(backing, "log"), []byte("text"), 0o644))
	client := start(t, backing, "backing", prompt)
	client.expect("log", "text")
	client.write("new", "more")
	must(t, client.process.Process.Signal(syscall.SIGTERM))
	must(t, client.process.Wait())
	client.expect("new", "more")
}

func TestTheControlSocketIsForRootAndExplainsItself(t *testing.T) {
	client, _ := twoClients(t, prompt)
	stat, err := os.Stat(client.socket)
	must(t, err)
	if stat.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, expected 0600", stat.Mode())
	}
	for _, words := range [][]string{{"explode"}, {"delay", "soon"}, {"delay", "-1s"}, {"height", "1s"}, {"a", "b", "c"}} {
		if err := send(client.socket, words, os.Stderr); err == nil {
			t.Fatalf("%v was accepted", words)
		}
	}
}
