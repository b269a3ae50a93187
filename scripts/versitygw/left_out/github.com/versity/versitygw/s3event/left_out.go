package s3event

import (
	"errors"
	"fmt"
	"sync/atomic"
)

var errLeftOut = errors.New("this build of versitygw sends no events to such a broker")

func InitKafkaEventService(string, string, string, EventFilter) (S3EventSender, error) {
	return nil, errLeftOut
}

func InitNatsEventService(string, string, EventFilter) (S3EventSender, error) {
	return nil, errLeftOut
}

func InitRabbitmqEventService(string, string, string, EventFilter) (S3EventSender, error) {
	return nil, errLeftOut
}

var sequencer atomic.Int64

func genSequencer() string {
	return fmt.Sprintf("%X", sequencer.Add(1))
}
