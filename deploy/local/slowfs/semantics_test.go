package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTruncationCutsWhatIsKeptBackToo(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	log := writer.open("log", os.O_CREATE|os.O_RDWR)
	writeTo(t, log, "0123456789")
	must(t, log.Truncate(4))
	writer.expect("log", "0123")
	must(t, log.Sync())
	reader.expect("log", "0123")
	must(t, os.Truncate(writer.path("log"), 0))
	reader.expect("log", "")
}

func TestARequeuedRunTruncatesTheLogOfTheFirst(t *testing.T) {
	first, second := twoClients(t, prompt)
	follower := first.open("log", os.O_CREATE|os.O_RDONLY)
	old := first.open("log", os.O_WRONLY|os.O_APPEND)
	writeTo(t, old, "first run\n")
	first.tell("flush")
	again := second.open("log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND)
	expectText(t, "after the truncation", at(t, follower, 0, 100), "")
	writeTo(t, again, "run 2\n")
	must(t, again.Close())
	expectText(t, "the same descriptor", at(t, follower, 0, 100), "run 2\n")
}

func TestAWriterThatDoesNotAppendLeavesAHoleAfterATruncation(t *testing.T) {
	first, second := twoClients(t, prompt)
	log := first.open("log", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "12345")
	must(t, log.Sync())
	must(t, os.Truncate(second.path("log"), 0))
	writeTo(t, log, "678")
	must(t, log.Sync())
	second.expect("log", "\x00\x00\x00\x00\x00678")
}

func TestAnUnlinkedFileLivesUntilItIsClosed(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	file := writer.open("scratch", os.O_CREATE|os.O_RDWR)
	writeTo(t, file, "kept")
	must(t, os.Remove(writer.path("scratch")))
	if !reader.missing("scratch") || !writer.missing("scratch") {
		t.Fatal("the name is still there")
	}
	must(t, file.Sync())
	expectText(t, "the unlinked file", at(t, file, 0, 100), "kept")
	stat, err := file.Stat()
	must(t, err)
	if stat.Size() != 4 {
		t.Fatalf("fstat shows %d bytes, expected 4", stat.Size())
	}
	must(t, file.Truncate(2))
	must(t, file.Close())
}

func TestRenamesAndLinksKeepTheFile(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	log := writer.open("a", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "text")
	must(t, os.Mkdir(writer.path("dir"), 0o755))
	must(t, os.Rename(writer.path("a"), writer.path("dir/b")))
	must(t, os.Rename(reader.path("dir"), reader.path("moved"))) // another client moves the directory below it
	writeTo(t, log, ", more")
	must(t, log.Close())
	reader.expect("moved/b", "text, more")
	must(t, os.Link(writer.path("moved/b"), writer.path("c")))
	reader.expect("c", "text, more")
	must(t, os.Symlink("moved/b", writer.path("link")))
	target, err := os.Readlink(reader.path("link"))
	must(t, err)
	expectText(t, "the symlink", target, "moved/b")
	reader.expect("link", "text, more")
	expectError(t, "rmdir", syscall.Rmdir(reader.path("moved")), syscall.ENOTEMPTY)
	must(t, os.RemoveAll(reader.path("moved")))
	reader.expect("c", "text, more")
}

func TestModesTimesAndOwnersAreKept(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	file := writer.open("file", os.O_CREATE|os.O_WRONLY)
	writeTo(t, file, "text")
	past := time.Date(2001, 2, 3, 4, 5, 6, 7000, time.UTC)
	must(t, os.Chtimes(writer.path("file"), past, past))
	must(t, os.Chmod(writer.path("file"), 0o640))
	must(t, os.Chown(writer.path("file"), alice, bob))
	must(t, os.Symlink("nowhere", writer.path("link")))
	must(t, os.Lchown(writer.path("link"), alice, bob))
	must(t, file.Close())
	var stat syscall.Stat_t
	for _, name := range []string{"file", "link"} {
		must(t, syscall.Lstat(reader.path(name), &stat))
		if stat.Uid != alice || stat.Gid != bob {
			t.Fatalf("%s is owned by %d:%d", name, stat.Uid, stat.Gid)
		}
	}
	found, err := os.Stat(reader.path("file"))
	must(t, err)
	if !found.ModTime().Equal(past) || found.Mode().Perm() != 0o640 {
		t.Fatalf("modified %v, mode %v", found.ModTime(), found.Mode())
	}
}

func TestNewFilesBelongToTheirCreator(t *testing.T) {
	client, _ := twoClients(t, prompt)
	must(t, os.Mkdir(client.path("shared"), 0o777))
	must(t, os.Chown(client.path("shared"), 0, bob))
	must(t, os.Chmod(client.path("shared"), 0o777|os.ModeSetgid))
	out, err := shell(t, alice, "umask 027; cd "+client.dir+` && echo x > file && mkdir dir && ln -s x link &&
		mkfifo fifo && echo x > shared/file && mkdir shared/dir &&
		stat -c '%n %u:%g %a' file dir link fifo shared/file shared/dir`)
	must(t, err)
	expectText(t, "owners and modes", out, strings.Join([]string{
		"file 2001:2001 640", "dir 2001:2001 750", "link 2001:2001 777", "fifo 2001:2001 640",
		"shared/file 2001:2002 640", "shared/dir 2001:2002 2750",
	}, "\n"))
}

func TestPermissionsAreEnforced(t *testing.T) {
	client, other := twoClients(t, prompt)
	_, err := shell(t, alice, "umask 077; mkdir "+client.path("home")+" && echo secret > "+client.path("secret"))
	must(t, err)
	for _, line := range []string{
		"cat " + other.path("secret"), "echo x >> " + client.path("secret"), "ls " + other.path("home"),
		"chmod 777 " + other.path("secret"), "touch " + client.path("home/file"),
	} {
		if out, err := shell(t, bob, line); err == nil {
			t.Fatalf("bob may %s: %s", line, out)
		}
	}
	must(t, os.WriteFile(client.path("none"), nil, 0o000))
	if _, err := shell(t, bob, "cat "+client.path("none")); err == nil {
		t.Fatal("a file of mode 0000 can be read")
	}
}

func TestACachedMissDoesNotOpenTheFileOfSomebodyElse(t *testing.T) {
	writer, reader := twoClients(t, caching)
	if !reader.missing("file") {
		t.Fatal("the file exists before it was written")
	}
	_, err := shell(t, alice, "umask 077; echo secret > "+writer.path("file"))
	must(t, err)
	if out, err := shell(t, bob, "echo forged > "+reader.path("file")); err == nil {
		t.Fatalf("bob wrote the file of alice: %s", out)
	}
	writer.expect("file", "secret\n")
	_, err = os.OpenFile(reader.path("file"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	expectError(t, "O_EXCL", err, os.ErrExist)
}

func TestALargeFileIsCopiedWholeInBoundedMemory(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	const megabytes = 200
	written := sha256.New()
	file := writer.open("large", os.O_CREATE|os.O_WRONLY)
	for number := range megabytes {
		block := []byte(strings.Repeat(fmt.Sprintf("%07d\n", number), 1<<17))
		written.Write(block)
		_, err := file.Write(block)
		must(t, err)
	}
	must(t, file.Close())
	read := sha256.New()
	_, err := io.Copy(read, reader.open("large", os.O_RDONLY))
	must(t, err)
	expectText(t, "checksum", string(read.Sum(nil)), string(written.Sum(nil)))
	for _, client := range []*instance{writer, reader} {
		if used := client.memoryMiB(); used > 128 {
			t.Fatalf("slowfs used %d MiB for a file of %d MiB", used, megabytes)
		}
	}
}

func TestMoreFilesAreKnownThanDescriptorsAllowed(t *testing.T) {
	client, _ := twoClients(t, caching)
	var limit syscall.Rlimit
	must(t, unix.Prlimit(client.process.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil))
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	for number := range 300 {
		must(t, os.WriteFile(filepath.Join(client.backing, fmt.Sprint(number)), nil, 0o644))
	}
	for number := range 300 {
		client.size(fmt.Sprint(number))
	}
	entries, err := os.ReadDir(client.dir)
	must(t, err)
	if len(entries) != 300 {
		t.Fatalf("%d entries, expected 300", len(entries))
	}
}

func TestAFileCanBeMapped(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	writer.write("data", "mapped text")
	file := reader.open("data", os.O_RDONLY)
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 11, syscall.PROT_READ, syscall.MAP_SHARED)
	must(t, err)
	expectText(t, "the mapping", string(mapped), "mapped text")
	must(t, syscall.Munmap(mapped))
}

func TestWritesThroughAMappingArrive(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	writer.write("data", "old text")
	file := writer.open("data", os.O_RDWR)
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(t, err)
	copy(mapped, "new")
	must(t, unix.Msync(mapped, unix.MS_SYNC))
	reader.expect("data", "new text")
	must(t, syscall.Munmap(mapped))
}

func TestLocksWorkWithinAHost(t *testing.T) {
	client, _ := twoClients(t, prompt)
	first, second := client.open("lock", os.O_CREATE|os.O_RDWR), client.open("lock", os.O_RDWR)
	must(t, syscall.Flock(int(first.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	expectError(t, "flock", syscall.Flock(int(second.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	must(t, first.Close())
	must(t, syscall.Flock(int(second.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	whole := &unix.Flock_t{Type: unix.F_WRLCK}
	must(t, unix.FcntlFlock(second.Fd(), unix.F_SETLK, whole))
}

func TestExtendedAttributesAreRefused(t *testing.T) {
	client, _ := twoClients(t, prompt)
	client.write("file", "text")
	err := unix.Setxattr(client.path("file"), "user.note", []byte("x"), 0)
	expectError(t, "setxattr", err, syscall.ENOTSUP)
}

func TestStatfsTellsTheBackingFileSystem(t *testing.T) {
	client, _ := twoClients(t, prompt)
	var ours, theirs syscall.Statfs_t
	must(t, syscall.Statfs(client.dir, &ours))
	must(t, syscall.Statfs(client.backing, &theirs))
	if ours.Blocks != theirs.Blocks || ours.Type != 0x65735546 {
		t.Fatalf("%d blocks of %d, type %x", ours.Blocks, theirs.Blocks, ours.Type)
	}
}

func TestOtherFileSystemsBelowAreNotShown(t *testing.T) {
	client, _ := twoClients(t, prompt)
	below := filepath.Join(client.backing, "below")
	must(t, os.Mkdir(below, 0o755))
	must(t, syscall.Mount("tmpfs", below, "tmpfs", 0, ""))
	t.Cleanup(func() { syscall.Unmount(below, syscall.MNT_DETACH) })
	if _, err := os.Stat(client.path("below")); err != nil && !errors.Is(err, syscall.EXDEV) {
		t.Fatal(err)
	}
}
