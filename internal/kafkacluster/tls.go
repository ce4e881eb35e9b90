package kafkacluster

import "strings"

// TLS has clients and brokers speak TLS, by PEM texts (KIP-651). The controllers'
// ports stay plain.
type TLS struct {
	// Certificate is that of every node, good for 127.0.0.1, with what leads to its
	// authority.
	Certificate string
	// Key is its private key, PKCS #8.
	Key string
	// Authorities are those of the certificates of clients, and of the nodes.
	Authorities string
	// ClientAuth has clients show certificates (mTLS).
	ClientAuth bool
}

// secured turns a security protocol into what it is in TLS; without TLS it stays.
func (t *TLS) secured(protocol string) string {
	if t == nil {
		return protocol
	}
	return strings.Replace(protocol, "PLAINTEXT", "SSL", 1)
}

// listener turns what says where a node's clients come in into what it is in TLS. The
// listener's name may be that of a protocol.
func (t *TLS) listener(value string) string {
	return strings.NewReplacer("CONTROLLER:PLAINTEXT", "CONTROLLER:PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL",
		"PLAINTEXT:PLAINTEXT", "SSL:SSL", "PLAINTEXT", "SSL").Replace(value)
}

// properties are what a node's server.properties have besides.
func (t *TLS) properties() map[string]string {
	properties := t.stores()
	if t.ClientAuth {
		properties["ssl.client.auth"] = "required"
	}
	return properties
}

// stores are the certificates, as nodes and Java clients take them.
func (t *TLS) stores() map[string]string {
	return map[string]string{
		"ssl.keystore.type":              "PEM",
		"ssl.keystore.certificate.chain": oneLine(t.Certificate),
		"ssl.keystore.key":               oneLine(t.Key),
		"ssl.truststore.type":            "PEM",
		"ssl.truststore.certificates":    oneLine(t.Authorities),
	}
}

// oneLine writes a text as a value in a file of properties.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", `\n`) }
