// Package zstd fails in place of a compression that no client of S3 requests.
package zstd

import (
	"errors"
	"io"
)

var errLeftOut = errors.New("this build of versitygw has no zstd")

type Decoder struct{}

func NewReader(io.Reader) (*Decoder, error) { return nil, errLeftOut }

func (*Decoder) Read([]byte) (int, error) { return 0, errLeftOut }

func (*Decoder) Reset(io.Reader) error { return errLeftOut }

func (*Decoder) Close() {}

type (
	Encoder       struct{}
	EncoderLevel  int
	EncoderOption struct{}
)

func WithEncoderLevel(EncoderLevel) EncoderOption { return EncoderOption{} }

func NewWriter(io.Writer, ...EncoderOption) (*Encoder, error) { return &Encoder{}, nil }

func (*Encoder) Write([]byte) (int, error) { return 0, errLeftOut }

func (*Encoder) Flush() error { return errLeftOut }

func (*Encoder) Close() error { return errLeftOut }

func (*Encoder) Reset(io.Writer) {}
