// A kubelet with one pod, for benchmarks: the pod's log is a file, its commands and ports are behind a relay.
//
// Kubernetes' own code serves the streams, so that a comparison with this measures what is behind a kubelet.
// Clients are those whom the API server's certificate for kubelets names, and nobody else.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/apiserver/pkg/util/flushwriter"
	client "k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	"k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const idle = 10 * time.Minute

// piped runs a command whose output is a pipe: behind srun -u it would be a terminal, to which tar writes no archive.
var piped = []string{"bash", "-c", `"$@" | cat; exit "${PIPESTATUS[0]}"`, "bash"}

// relay is the command, such as srun with its options, that runs another where the pod is.
type relay []string

// ExecInContainer runs a command through the relay, with its three streams.
func (r relay) ExecInContainer(ctx context.Context, _ string, _ types.UID, _ string, words []string, in io.Reader, out, problems io.WriteCloser, _ bool, _ <-chan client.TerminalSize, _ time.Duration) error {
	command := r.command(ctx, append(slices.Clone(piped), words...))
	if out != nil {
		command.Stdout = out
	}
	if problems != nil {
		command.Stderr = problems
	}
	err := run(command, in)
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}
	}
	return err
}

// PortForward connects a stream with a port, through the relay.
func (r relay) PortForward(ctx context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	command := r.command(ctx, []string{"socat", "-", fmt.Sprintf("TCP:127.0.0.1:%d", port)})
	command.Stdout, command.Stderr = stream, os.Stderr
	return run(command, stream)
}

func (r relay) command(ctx context.Context, words []string) *exec.Cmd {
	all := append(slices.Clone(r), words...)
	return exec.CommandContext(ctx, all[0], all[1:]...)
}

// run returns when the command has ended. With `command.Stdin = in` it would wait for the client's input too.
func run(command *exec.Cmd, in io.Reader) error {
	if in != nil {
		input, err := command.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			defer input.Close()
			io.Copy(input, in)
		}()
	}
	return command.Run()
}

// serveLog sends the whole file, as a kubelet does: what is written is sent at once.
func serveLog(path string) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		file, err := os.Open(path)
		if err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
		defer file.Close()
		if _, err := io.Copy(flushwriter.Wrap(response), file); err != nil {
			log.Printf("%s: %v", request.URL.Path, err)
		}
	}
}

func healthy(response http.ResponseWriter, _ *http.Request) {
	io.WriteString(response, "ok")
}

func serveExec(relay relay) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		options, err := execOptions(request)
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(response, request, relay, request.PathValue("pod"), "", request.PathValue("container"),
			request.Form["command"], options, idle, remotecommandconsts.DefaultStreamCreationTimeout,
			remotecommandconsts.SupportedStreamingProtocols)
	}
}

// execOptions are those that a kubelet takes; a terminal is not offered.
func execOptions(request *http.Request) (*remotecommand.Options, error) {
	options, err := remotecommand.NewOptions(request)
	if err == nil && (options.TTY || len(request.Form["command"]) == 0) {
		err = errors.New("a command without a terminal is needed")
	}
	return options, err
}

func serveForward(relay relay) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		options, err := portforward.NewV4Options(request)
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(response, request, relay, request.PathValue("pod"), "", options, idle,
			remotecommandconsts.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
	}
}

// only lets clients pass whose certificate has this organization.
func only(administrators string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		chains := request.TLS.VerifiedChains
		if len(chains) == 0 || !slices.Contains(chains[0][0].Subject.Organization, administrators) {
			http.Error(response, "only the API server may ask", http.StatusForbidden)
			return
		}
		next.ServeHTTP(response, request)
	})
}

func routes(logPath string, relay relay) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", serveLog(logPath))
	mux.Handle("/exec/{namespace}/{pod}/{container}", serveExec(relay))
	mux.Handle("/portForward/{namespace}/{pod}", serveForward(relay))
	return mux
}

func trusted(path string) (*tls.Config, error) {
	authority, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}, nil
}

func main() {
	address := flag.String("address", "", "where it listens: the node's `address`")
	port := flag.Int("port", 0, "and its `port`")
	folder := flag.String("folder", "", "`folder` with tls.crt, tls.key and ca.crt")
	administrators := flag.String("administrators", "", "the `organization` of the API server's certificate")
	logPath := flag.String("log", "", "the `file` that is the pod's log")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("no relay: give its words after the options")
	}
	config, err := trusted(*folder + "/ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              *address + ":" + strconv.Itoa(*port),
		Handler:           only(*administrators, routes(*logPath, flag.Args())),
		TLSConfig:         config,
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServeTLS(*folder+"/tls.crt", *folder+"/tls.key"))
}
