// Package tlsfiles speaks TLS by certificates, keys and authorities that stand in
// files, and takes over what the files hold later without dropping a connection: each
// handshake uses what was read last.
//
// Whoever watches the files calls Store.Reload. What cannot be used is refused, and
// what was read before stays in force.
package tlsfiles
