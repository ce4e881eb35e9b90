package proxy

import (
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// loginResult is what came of a login, as metrics name it.
type loginResult string

const (
	loginDone    loginResult = "ok"
	loginRefused loginResult = "refused"
	// loginFailed did not come to an end: the connection was lost, a secret could
	// not be read.
	loginFailed loginResult = "failed"
)

// otherMechanism is how one that a client made up is counted.
const otherMechanism Mechanism = "other"

// loginSeries is what is counted together; listener is empty for the proxy's own.
type loginSeries struct {
	listener  string
	mechanism Mechanism
	result    loginResult
}

// loginCounts counts logins. There are few series: listeners and mechanisms are
// those of the configuration. It may be used concurrently.
type loginCounts struct{ series sync.Map } // loginSeries to *atomic.Int64

func (l *loginCounts) add(s loginSeries) {
	n, ok := l.series.Load(s)
	if !ok {
		n, _ = l.series.LoadOrStore(s, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

func byLogin(of func(*metrics) *loginCounts) func(*metrics, func(int64, metric.MeasurementOption)) {
	return func(m *metrics, observe func(int64, metric.MeasurementOption)) {
		of(m).series.Range(func(key, n any) bool {
			s := key.(loginSeries)
			attributes := []attribute.KeyValue{attribute.String("mechanism", string(s.mechanism)), attribute.String("result", string(s.result))}
			if s.listener != "" {
				attributes = append(attributes, attribute.String("listener", s.listener))
			}
			observe(n.(*atomic.Int64).Load(), metric.WithAttributes(attributes...))
			return true
		})
	}
}
