package config

import (
	"crypto/tls"
	"slices"
	"strings"

	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// ListenerTLS is what clients are spoken to with; absent: plain.
type ListenerTLS struct {
	// CertFile is tlsfiles.Files.Cert.
	CertFile Value `yaml:"cert_file"`
	// KeyFile is tlsfiles.Files.Key.
	KeyFile Value `yaml:"key_file"`
	// ClientCAFile is tlsfiles.Files.CA: what clients' certificates are checked against.
	ClientCAFile Value `yaml:"client_ca_file"`
	// ClientAuth is none, want or require; default: require if there is a
	// ClientCAFile, else none.
	ClientAuth Value `yaml:"client_auth"`
	// MinVersion is tlsfiles.Files.MinVersion: 1.2 or 1.3.
	MinVersion Value `yaml:"min_version"`
}

// UpstreamTLS is what brokers are spoken to with; absent: plain.
type UpstreamTLS struct {
	// Enabled is true or false; default: true if any other key is given.
	Enabled Value `yaml:"enabled"`
	// CAFile is tlsfiles.Files.CA; default: the authorities of the system.
	CAFile Value `yaml:"ca_file"`
	// CertFile is tlsfiles.Files.Cert, if brokers ask who one is.
	CertFile Value `yaml:"cert_file"`
	// KeyFile is tlsfiles.Files.Key.
	KeyFile Value `yaml:"key_file"`
	// ServerName is tlsfiles.Files.ServerName.
	ServerName Value `yaml:"server_name"`
	// MinVersion is tlsfiles.Files.MinVersion: 1.2 or 1.3.
	MinVersion Value `yaml:"min_version"`
}

// defaultMinVersion is the least that is spoken if nothing is said.
const defaultMinVersion = tls.VersionTLS12

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (r *resolver) listenerTLS(d ListenerTLS, path string, l *proxy.Listener) {
	place := first(d.CertFile, d.KeyFile, d.ClientCAFile, d.ClientAuth, d.MinVersion)
	if !place.given {
		if l.ServerNames != nil {
			r.wrong(Value{}, path, "missing: clients name a server in TLS only, and server_names are given")
			l.ServerNames = nil
		}
		return
	}
	files := &tlsfiles.Files{Cert: d.CertFile.text, Key: d.KeyFile.text, CA: d.ClientCAFile.text, MinVersion: r.minVersion(d.MinVersion, path)}
	if files.Cert == "" {
		r.wrong(place, path+".cert_file", "missing: the PEM file with the certificate that clients are shown")
	}
	if files.Key == "" {
		r.wrong(place, path+".key_file", "missing: the PEM file with the certificate's private key")
	}
	switch v := d.ClientAuth; {
	case !v.given && files.CA == "", v.text == "none":
	case !v.given, v.text == "require":
		files.ClientAuth = tls.RequireAndVerifyClientCert
	case v.text == "want":
		files.ClientAuth = tls.VerifyClientCertIfGiven
	default:
		r.wrong(v, path+".client_auth", "%q is not none, want or require", v.text)
	}
	if files.ClientAuth != tls.NoClientCert && files.CA == "" {
		r.wrong(d.ClientAuth, path+".client_ca_file", "missing: what clients' certificates are checked against")
	}
	if r.out.ListenerTLS == nil {
		r.out.ListenerTLS = map[string]tlsfiles.Files{}
	}
	r.out.ListenerTLS[l.Name] = *files
	// Whoever starts the proxy reads the files.
	l.TLS = &tls.Config{MinVersion: files.MinVersion}
}

func (r *resolver) upstreamTLS() {
	d, path := r.doc.Upstream.TLS, "upstream.tls"
	place := first(d.CAFile, d.CertFile, d.KeyFile, d.ServerName, d.MinVersion)
	enabled := place.given
	r.yesOrNo(d.Enabled, path+".enabled", &enabled)
	if !enabled {
		return
	}
	files := &tlsfiles.Files{
		Cert: d.CertFile.text, Key: d.KeyFile.text, CA: d.CAFile.text, ServerName: d.ServerName.text,
		MinVersion: r.minVersion(d.MinVersion, path),
	}
	switch {
	case files.Cert == "" && files.Key != "":
		r.wrong(d.KeyFile, path+".cert_file", "missing: the certificate of key_file")
	case files.Key == "" && files.Cert != "":
		r.wrong(d.CertFile, path+".key_file", "missing: the private key of cert_file")
	}
	if files.ServerName != "" && !isHost(files.ServerName) {
		r.wrong(d.ServerName, path+".server_name", "%q is not a host name", files.ServerName)
	}
	r.out.UpstreamTLS = files
}

func (r *resolver) minVersion(v Value, path string) uint16 {
	if !v.given {
		return defaultMinVersion
	}
	version, known := tlsVersions[v.text]
	if !known {
		var names []string
		for name := range tlsVersions {
			names = append(names, name)
		}
		slices.Sort(names)
		r.wrong(v, path+".min_version", "%q is not one of %s; older versions are not safe", v.text, strings.Join(names, ", "))
		return defaultMinVersion
	}
	return version
}
