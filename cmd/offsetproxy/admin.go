package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/offsetproxy/offsetproxy/proxy"
)

const (
	adminHeaderTimeout = 5 * time.Second
	// adminReadTimeout is for a request, and adminWriteTimeout for its answer, which
	// profiles extend by how long they take. So those who take nothing hold a descriptor
	// of the proxy's for so long, and those who ask for nothing more for
	// adminIdleTimeout.
	adminReadTimeout  = 10 * time.Second
	adminWriteTimeout = 15 * time.Second
	adminIdleTimeout  = 2 * time.Minute
	// adminHeaderBytes bounds the head of a request; what asks here is short.
	adminHeaderBytes  = 16 << 10
	adminCloseTimeout = 3 * time.Second
	// adminConnections bounds those who are connected: descriptors are for clients.
	adminConnections = 256
)

// adminServer serves /metrics (Prometheus; the Go runtime's and the process's
// among them), /livez and /readyz. A nil
// *adminServer does nothing, for a process without one.
type adminServer struct {
	listener net.Listener
	mux      *http.ServeMux
	http     *http.Server
	proxy    atomic.Pointer[proxy.Proxy] // nil: not started yet
	done     chan struct{}               // closed by serveLoop when it returns
}

// startAdmin listens and serves until close: the metrics of a registry, and profiles, if
// they are wanted, under /debug/pprof.
func startAdmin(listen string, profiles bool, registry *prometheus.Registry, logger *slog.Logger) (*adminServer, error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	return serveAdmin(listener, profiles, registry, logger), nil
}

// serveAdmin is startAdmin on a listener that close closes.
func serveAdmin(listener net.Listener, profiles bool, registry *prometheus.Registry, logger *slog.Logger) *adminServer {
	a := &adminServer{
		listener: listener,
		done:     make(chan struct{}),
	}
	mux := http.NewServeMux()
	a.mux = mux
	metrics := shareGatherings(registry.Gather)
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.GathererFunc(metrics.Gather), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", a.livez)
	mux.HandleFunc("GET /readyz", a.readyz)
	if profiles {
		if host, _, err := net.SplitHostPort(listener.Addr().String()); err != nil || !proxy.IsLoopbackHost(host) {
			logger.Warn("profiles are served to everybody who reaches the admin endpoints, and whoever asks for one costs processor time: have metrics.listen name 127.0.0.1, or set metrics.pprof only while you need it",
				"admin", listener.Addr().String())
		}
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	a.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: adminHeaderTimeout,
		ReadTimeout:       adminReadTimeout,
		WriteTimeout:      adminWriteTimeout,
		IdleTimeout:       adminIdleTimeout,
		MaxHeaderBytes:    adminHeaderBytes,
		ConnState:         (&adminConns{busy: map[net.Conn]bool{}}).changed,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	go a.serveLoop(logger)
	return a
}

// handle serves something else too, from then on. It may be called while requests
// come.
func (a *adminServer) handle(pattern string, h http.Handler) { a.mux.Handle(pattern, h) }

// serveLoop serves until close, or until the listener fails.
func (a *adminServer) serveLoop(logger *slog.Logger) {
	defer close(a.done)
	if err := a.http.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		logger.Error("admin endpoint failed", "err", err)
	}
}

// addr is where it listens.
func (a *adminServer) addr() string { return a.listener.Addr().String() }

// watch has /livez and /readyz tell of a proxy.
func (a *adminServer) watch(p *proxy.Proxy) {
	if a != nil {
		a.proxy.Store(p)
	}
}

// livez says whether the process should be left running.
func (a *adminServer) livez(w http.ResponseWriter, _ *http.Request) {
	if p := a.proxy.Load(); p != nil {
		if err := p.Live(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	io.WriteString(w, "ok\n")
}

// readyz says whether clients should be sent here, and why not.
func (a *adminServer) readyz(w http.ResponseWriter, _ *http.Request) {
	why := "not started yet"
	if p := a.proxy.Load(); p != nil {
		why = p.NotReady()
	}
	if why != "" {
		http.Error(w, "not ready: "+why, http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ok\n")
}

// close stops serving and waits for it.
func (a *adminServer) close() error {
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminCloseTimeout)
	defer cancel()
	err := a.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.http.Close()
	}
	<-a.done
	return err
}
