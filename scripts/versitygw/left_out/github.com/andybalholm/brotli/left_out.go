// Package brotli fails in place of a compression that no client of S3 requests.
package brotli

import (
	"errors"
	"io"
)

var errLeftOut = errors.New("this build of versitygw has no brotli")

const (
	BestSpeed          = 0
	BestCompression    = 11
	DefaultCompression = 6
)

type Reader struct{}

func NewReader(io.Reader) *Reader { return &Reader{} }

func (*Reader) Read([]byte) (int, error) { return 0, errLeftOut }

func (*Reader) Reset(io.Reader) error { return errLeftOut }

type Writer struct{}

func NewWriterLevel(io.Writer, int) *Writer { return &Writer{} }

func (*Writer) Write([]byte) (int, error) { return 0, errLeftOut }

func (*Writer) Flush() error { return errLeftOut }

func (*Writer) Close() error { return errLeftOut }

func (*Writer) Reset(io.Writer) {}
