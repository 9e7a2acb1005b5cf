package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const controlDeadline = 10 * time.Second

const commands = "hang | resume | delay DURATION | stale | flush | status |" +
	" attr DURATION | entry DURATION | negative DURATION | writeback DURATION"

// serveControl answers one line for each command line. The socket is for root only.
func serveControl(c *client, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	previous := unix.Umask(0o177)
	listener, err := net.Listen("unix", path)
	unix.Umask(previous)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(c, connection)
		}
	}()
	return listener, nil
}

func answer(c *client, connection net.Conn) {
	defer connection.Close()
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		reply, err := c.command(strings.Fields(lines.Text()))
		if err != nil {
			reply = "error: " + err.Error()
		}
		if _, err := fmt.Fprintln(connection, reply); err != nil {
			return
		}
	}
}

// command does what a control line asks, and answers "ok" or what was asked for.
func (c *client) command(words []string) (string, error) {
	switch len(words) {
	case 1:
		return c.act(words[0])
	case 2:
		return "ok", c.set(words[0], words[1])
	}
	return "", fmt.Errorf("expected one command: %s", commands)
}

func (c *client) act(name string) (string, error) {
	switch name {
	case "hang":
		c.gate.hang()
	case "resume":
		c.gate.resume()
	case "stale":
		c.epoch.Add(1)
		c.files.discardAll()
	case "flush":
		return "ok", c.files.flushAll()
	case "status":
		return c.status(), nil
	default:
		return "", fmt.Errorf("unknown command %q; known are: %s", name, commands)
	}
	return "ok", nil
}

func (c *client) set(name, value string) error {
	changed, known := map[string]*setting{
		"delay": &c.gate.delay, "attr": &c.settings.attr, "entry": &c.settings.entry,
		"negative": &c.settings.negative, "writeback": &c.settings.writeback,
	}[name]
	if !known {
		return fmt.Errorf("unknown setting %q; known are: %s", name, commands)
	}
	if err := changed.Set(value); err != nil {
		return fmt.Errorf("%s %s: expected a duration such as 200ms: %w", name, value, err)
	}
	return nil
}

func (c *client) status() string {
	return fmt.Sprintf("state=%s delay=%s waiting=%d dirty=%d open=%d attr=%s entry=%s negative=%s writeback=%s",
		c.gate.state(), &c.gate.delay, c.gate.waiting.Load(), c.files.dirtyBytes.Load(), len(c.files.all()),
		&c.settings.attr, &c.settings.entry, &c.settings.negative, &c.settings.writeback)
}

// send gives one command to a running instance and prints its answer.
func send(path string, words []string, out io.Writer) error {
	connection, err := net.DialTimeout("unix", path, controlDeadline)
	if err != nil {
		return fmt.Errorf("no slowfs answers at %s: %w", path, err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(controlDeadline)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(connection, strings.Join(words, " ")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return fmt.Errorf("slowfs at %s did not answer: %w", path, err)
	}
	if strings.HasPrefix(reply, "error: ") {
		return errors.New(strings.TrimSpace(strings.TrimPrefix(reply, "error: ")))
	}
	_, err = io.WriteString(out, reply)
	return err
}

func isAnswered(path string) bool {
	return send(path, []string{"status"}, io.Discard) == nil
}
