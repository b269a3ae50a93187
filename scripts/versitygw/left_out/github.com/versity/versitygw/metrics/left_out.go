package metrics

import "errors"

var errLeftOut = errors.New("this build of versitygw sends no metrics")

type leftOut struct{}

func (leftOut) Close() {}

func (leftOut) Add(string, int64, ...Tag) {}

func newStatsd(string, string) (leftOut, error) { return leftOut{}, errLeftOut }

func newDogStatsd(string, string) (leftOut, error) { return leftOut{}, errLeftOut }
