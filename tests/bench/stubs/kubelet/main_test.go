package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

func answer(t *testing.T, organization, path string) (int, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &x509.Certificate{Subject: pkix.Name{Organization: []string{organization}}}
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{client}}}
	recorder := httptest.NewRecorder()
	only("administrators", routes(log, relay{"env"})).ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

func TestTheLogIsTheFileAndOnlyForTheAdministratorsOfKubelets(t *testing.T) {
	const path = "/containerLogs/alice/stub/main"
	if code, body := answer(t, "administrators", path); code != http.StatusOK || body != "line\n" {
		t.Errorf("an administrator gets %d %q", code, body)
	}
	if code, body := answer(t, "system:nodes", path); code != http.StatusForbidden || body == "line\n" {
		t.Errorf("a node gets %d %q", code, body)
	}
}

func TestACommandRunsByTheRelayAndEndsWithItsCodeThoughInputIsOpen(t *testing.T) {
	input, kept := io.Pipe()
	defer kept.Close()
	out := &buffer{}
	words := []string{"sh", "-c", "read -r line; test -p /dev/stdout && echo $RELAYED $line; exit 3"}
	go io.WriteString(kept, "typed\n")
	err := relay{"env", "RELAYED=yes"}.ExecInContainer(t.Context(), "", "", "", words, input, out, nil, false, nil, 0)
	code, ok := err.(interface{ ExitStatus() int })
	if !ok || code.ExitStatus() != 3 || out.String() != "yes typed\n" {
		t.Errorf("it ended by %v and wrote %q", err, out)
	}
}
