package main

import (
	"os"
	"strings"
	"testing"
)

func TestOthersSeeTheSizeBeforeTheData(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	log := writer.open("log", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "first\n")

	follower := reader.open("log", os.O_RDONLY)
	if size := reader.size("log"); size != 6 {
		t.Fatalf("the reader sees %d bytes, expected 6", size)
	}
	expectText(t, "before the write-back", at(t, follower, 0, 100), strings.Repeat("\x00", 6))

	writer.tell("flush")
	expectText(t, "after it, by the same descriptor", at(t, follower, 0, 100), "first\n")
}

func TestTheWriterReadsItsOwnDataAtOnce(t *testing.T) {
	for _, flags := range []int{os.O_WRONLY, os.O_WRONLY | os.O_APPEND} {
		writer, _ := twoClients(t, prompt)
		log := writer.open("log", os.O_CREATE|flags)
		follower := writer.open("log", os.O_RDONLY)
		expectText(t, "nothing yet", at(t, follower, 0, 100), "")
		writeTo(t, log, "one\n")
		expectText(t, "the first line", at(t, follower, 0, 100), "one\n")
		writeTo(t, log, "two\n")
		expectText(t, "both lines", at(t, follower, 0, 100), "one\ntwo\n")
		writer.expect("log", "one\ntwo\n")
		if writer.status("dirty") != "8" {
			t.Fatalf("%s bytes are kept back, expected 8", writer.status("dirty"))
		}
	}
}

func TestOverwrittenBytesStayOldUntilTheWriteBack(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	// One descriptor: the kernel tells of a close later, and what is dirty then is written back.
	file := writer.open("data", os.O_CREATE|os.O_RDWR)
	writeTo(t, file, "aaaaaaaa")
	must(t, file.Sync())
	_, err := file.WriteAt([]byte("BB"), 3)
	must(t, err)
	_, err = file.WriteAt([]byte("CCCC"), 6)
	must(t, err)

	reader.expect("data", "aaaaaaaa\x00\x00")
	expectText(t, "the writer", at(t, file, 0, 100), "aaaBBaCCCC")
	must(t, file.Sync())
	reader.expect("data", "aaaBBaCCCC")
}

func TestFsyncCloseAndOSyncPublishTheData(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	log := writer.open("log", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "a")
	reader.expect("log", "\x00")
	must(t, log.Sync())
	reader.expect("log", "a")
	writeTo(t, log, "b")
	reader.expect("log", "a\x00")
	must(t, log.Close())
	reader.expect("log", "ab")

	writeTo(t, writer.open("synced", os.O_CREATE|os.O_WRONLY|os.O_SYNC), "now")
	reader.expect("synced", "now")
}

func TestDataIsWrittenBackByItselfAfterTheDelay(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	writer.tell("writeback", "1ms")
	log := writer.open("log", os.O_CREATE|os.O_WRONLY)
	writeTo(t, log, "line\n")
	follower := reader.open("log", os.O_RDONLY)
	eventually(t, "the line", func() bool { return at(t, follower, 0, 100) == "line\n" })
}

func TestWithoutWriteBackDataIsSeenAtOnce(t *testing.T) {
	writer, reader := twoClients(t, prompt)
	writer.tell("writeback", "0s")
	writeTo(t, writer.open("log", os.O_CREATE|os.O_WRONLY), "line\n")
	reader.expect("log", "line\n")
}

func TestAttributesAreCachedUntilTheNextOpen(t *testing.T) {
	writer, reader := twoClients(t, caching)
	writer.write("log", "one\n")
	follower := reader.open("log", os.O_RDONLY)
	expectText(t, "the first line", at(t, follower, 0, 100), "one\n")
	reader.size("log") // a read from the server makes FUSE ask for the attributes once more
	writer.write("log", "one\ntwo\n")

	if size := reader.size("log"); size != 4 {
		t.Fatalf("stat shows %d bytes, expected the cached 4", size)
	}
	expectText(t, "an old descriptor", at(t, follower, 0, 100), "one\n")
	again := reader.open("log", os.O_RDONLY)
	stat, err := again.Stat()
	must(t, err)
	if stat.Size() != 8 {
		t.Fatalf("fstat after open shows %d bytes, expected 8", stat.Size())
	}
	expectText(t, "a new descriptor", at(t, again, 0, 100), "one\ntwo\n")
}

func TestCachedDataIsDroppedByAnOpen(t *testing.T) {
	writer, reader := twoClients(t, caching)
	writer.write("log", "old text")
	reader.expect("log", "old text")
	writer.write("log", "new text")
	reader.expect("log", "new text")
}

func TestANameThatWasMissingIsMissedUntilTheCacheExpires(t *testing.T) {
	writer, reader := twoClients(t, caching)
	if !reader.missing("slurm-1.out") {
		t.Fatal("the file exists before it was written")
	}
	writer.write("slurm-1.out", "here")
	if !reader.missing("slurm-1.out") {
		t.Fatal("the miss was not cached")
	}
	reader.tell("negative", "0s")
	if !reader.missing("slurm-2.out") {
		t.Fatal("the file exists before it was written")
	}
	writer.write("slurm-2.out", "here")
	reader.expect("slurm-2.out", "here")
}

func TestARenameByAnotherClientIsSeenLate(t *testing.T) {
	writer, reader := twoClients(t, caching)
	writer.write("log", "old run")
	writer.write("new", "new run, longer")
	if size := reader.size("log"); size != 7 {
		t.Fatalf("%d bytes, expected 7", size)
	}
	must(t, os.Rename(writer.path("new"), writer.path("log")))
	if size := reader.size("log"); size != 7 {
		t.Fatalf("the name leads to a file of %d bytes, expected the cached one of 7", size)
	}
	reader.expect("log", "new run, longer") // ESTALE makes the kernel look the name up again
}

func TestAnAppendGoesToTheEndThatItsClientKnows(t *testing.T) {
	first, second := twoClients(t, prompt)
	second.tell("attr", "1h")
	ours := first.open("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	theirs := second.open("log", os.O_WRONLY|os.O_APPEND)
	writeTo(t, ours, "ours-1\n")
	writeTo(t, theirs, "THEIRS\n") // its end is still 0
	first.tell("flush")
	second.tell("flush")
	first.expect("log", "THEIRS\n")

	writeTo(t, ours, "ours-2\n")
	first.tell("flush")
	second.tell("attr", "0s")
	writeTo(t, theirs, "again\n")
	second.tell("flush")
	first.expect("log", "THEIRS\nours-2\nagain\n")
}

func TestAppendsThatOpenAndCloseLoseNothing(t *testing.T) {
	first, second := twoClients(t, caching)
	for range 3 {
		for client, line := range map[*instance]string{first: "first\n", second: "second\n"} {
			log := client.open("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
			writeTo(t, log, line)
			must(t, log.Close())
		}
	}
	text, err := os.ReadFile(first.path("log"))
	must(t, err)
	if strings.Count(string(text), "first\n") != 3 || strings.Count(string(text), "second\n") != 3 {
		t.Fatalf("lines are missing: %q", text)
	}
}

func TestAReaderBesideAnAppenderSeesTheAppendWhereItIs(t *testing.T) {
	first, second := twoClients(t, caching)
	first.write("log", "0123")
	reader := second.open("log", os.O_RDONLY)
	expectText(t, "before", at(t, reader, 0, 100), "0123")
	first.write("log", "0123AB")
	writeTo(t, second.open("log", os.O_WRONLY|os.O_APPEND), "CD")
	expectText(t, "after", at(t, reader, 0, 100), "0123ABCD")
}
