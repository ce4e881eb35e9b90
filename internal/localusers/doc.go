// Package localusers knows the users who log in at the proxy itself: it reads them
// from a file, takes over what changes there, and carries out the server's side of
// SASL PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). It opens no connection, and
// says nothing of what a user may do.
//
// Nothing that it returns, errors included, holds a password or what could be used in
// the place of one. Who has no user takes as long to be refused as who has one and the
// wrong password, and is answered alike.
package localusers
