// A versitygw for tests and demos on this machine: the S3 API over a folder, and nothing else of the real program.
//
//	versitygw [--quiet] [--port HOST:PORT] [--region REGION] posix FOLDER
//
// The credentials come from ROOT_ACCESS_KEY and ROOT_SECRET_KEY, as in the real program. The handlers of requests and
// the storage are the real ones, unchanged. The real program links the clients of Azure, Vault, LDAP, Kafka and others
// as well, and its build costs three times as much. small_build.py builds this one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

// The defaults of the real program (cmd/versitygw/main.go and cmd/internal/gwcli/posix.go).
const (
	maxConnections = 250_000
	maxRequests    = 100_000
	maxParts       = 10_000
	concurrency    = 5_000
	bufferBytes    = 1 << 20
	copyBytes      = 5 << 30
)

func main() {
	port := flag.String("port", ":7070", "address to listen on, as HOST:PORT")
	region := flag.String("region", "us-east-1", "region that clients have to sign for")
	quiet := flag.Bool("quiet", false, "do not print a line for each request")
	flag.Parse()
	if flag.NArg() != 2 || flag.Arg(0) != "posix" {
		fmt.Fprintln(os.Stderr, "versitygw: expected: [--quiet] [--port HOST:PORT] [--region REGION] posix FOLDER")
		os.Exit(2)
	}
	if err := serve(*port, *region, *quiet, flag.Arg(1)); err != nil {
		log.Fatal(err)
	}
}

func serve(port, region string, quiet bool, folder string) error {
	root := middlewares.RootUserConfig{Access: os.Getenv("ROOT_ACCESS_KEY"), Secret: os.Getenv("ROOT_SECRET_KEY")}
	if root.Access == "" || root.Secret == "" {
		return fmt.Errorf("expected the variables ROOT_ACCESS_KEY and ROOT_SECRET_KEY, found one of them empty")
	}
	if err := (meta.XattrMeta{}).Test(folder); err != nil {
		return fmt.Errorf("the file system of %s has no extended attributes: %w", folder, err)
	}
	options := posix.PosixOpts{Concurrency: concurrency, IOBufferSize: bufferBytes, CopyObjectThreshold: copyBytes}
	options.SetNewDirPerm(0o755)
	options.SetNewFilePerm(0o644)
	backend, err := posix.New(folder, meta.XattrMeta{}, options)
	if err != nil {
		return err
	}
	defer backend.Shutdown()
	settings := []s3api.Option{
		s3api.WithConcurrencyLimiter(maxConnections, maxRequests),
		s3api.WithMpMaxParts(maxParts),
		s3api.WithAdminServer(),
	}
	if quiet {
		settings = append(settings, s3api.WithQuiet())
	}
	users := auth.NewIAMServiceSingle(auth.Account{Access: root.Access, Secret: root.Secret, Role: auth.RoleAdmin})
	server, err := s3api.New(backend, root, region, users, nil, nil, nil, nil, settings...)
	if err != nil {
		return err
	}
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.ServeMultiPort([]string{port}) }()
	select {
	case err = <-ended:
		return err
	case <-terminated.Done():
		return server.ShutDown()
	}
}
