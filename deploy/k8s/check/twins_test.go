package check

import (
	"bytes"
	"testing"

	v1 "k8s.io/api/apps/v1"
)

// TestBrokenManifestsAreRefused breaks one thing at a time: each must be found, or
// TestManifestsAreValid means nothing.
func TestBrokenManifestsAreRefused(t *testing.T) {
	scheme := newScheme(t)
	for _, c := range []struct{ name, overlay, text, broken string }{
		{"an unknown field", "gateway/ports", "minReadySeconds: 10", "minReadySecond: 10"},
		{"an unknown field deep inside", "gateway/ports", "failureThreshold: 3", "failureTreshold: 3"},
		{"a field twice", "gateway/ports", "minReadySeconds: 10", "minReadySeconds: 10\n  minReadySeconds: 11"},
		{"text in the place of a number", "gateway/ports", "minReadySeconds: 10", "minReadySeconds: soon"},
		{"an unknown kind", "gateway/ports", "kind: Deployment\nmetadata", "kind: Deploiment\nmetadata"},
		{"an init container that restarts sometimes", "example", "restartPolicy: Always", "restartPolicy: OnFailure"},
		{"probes of an init container that ends", "example", "restartPolicy: Always", "stdin: false"},
		{"a mount without a volume", "gateway/ports", "mountPath: /etc/offsetproxy\n          name: config", "mountPath: /etc/offsetproxy\n          name: confik"},
		{"a selector of other Pods", "gateway/ports", "matchLabels:\n      app: offsetproxy\n  strategy", "matchLabels:\n      app: other\n  strategy"},
		{"an update that can never start", "gateway/ports", "maxSurge: 1", "maxSurge: 0"},
		{"a name of a port that is too long", "gateway/ports", "name: broker-0", "name: the-broker-with-node-id-0-of-all-those-that-there-are-in-the-cluster"},
		{"affinity without an end", "gateway/ports", "timeoutSeconds: 10800", "timeoutSeconds: 0"},
		{"affinity by something else", "gateway/sni", "sessionAffinity: ClientIP", "sessionAffinity: ClientIPs"},
		{"a policy of traffic that is none", "gateway/sni", "externalTrafficPolicy: Local", "externalTrafficPolicy: Here"},
		{"a budget with both bounds", "gateway/ports", "maxUnavailable: 1\n", "maxUnavailable: 1\n  minAvailable: 1\n"},
		{"an autoscaler upside down", "gateway/ports", "maxReplicas: 6", "maxReplicas: 1"},
		{"an autoscaler by nothing", "gateway/ports", "averageUtilization: 60\n        type: Utilization", "type: Utilization"},
		{"a range of ports upside down", "gateway/ports", "endPort: 9192", "endPort: 9091"},
		{"a label that is none", "example", "offsetproxy/sidecar: \"true\"", "offset proxy/sidecar: \"true\""},
		{"a monitor with an unknown field", "monitoring", "interval: 15s", "intervall: 15s"},
		// Pod Security, which needs the whole object.
		{"root", "gateway/ports", "runAsUser: 65532", "runAsUser: 0"},
		{"perhaps root", "gateway/ports", "runAsNonRoot: true", "runAsNonRoot: false"},
		{"capabilities", "gateway/ports", "- ALL", "- NET_RAW"},
		{"no seccomp profile", "gateway/ports", "type: RuntimeDefault", "type: Unconfined"},
		{"privileges", "example", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"},
		{"a directory of the node", "gateway/ports", "configMap:\n          name: offsetproxy", "hostPath:\n          path: /etc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := false
			for _, document := range render(t, c.overlay) {
				broken := bytes.Replace(document, []byte(c.text), []byte(c.broken), 1)
				if bytes.Equal(broken, document) {
					continue
				}
				found = true
				accepted, err := accept(scheme, broken)
				if err != nil {
					continue
				}
				deployment, ok := accepted.defaulted.(*v1.Deployment)
				if ok && len(podSecurity(t, &deployment.Spec.Template)) > 0 {
					continue
				}
				t.Errorf("accepted:\n%s", broken)
			}
			if !found {
				t.Errorf("%q stands nowhere", c.text)
			}
		})
	}
}

// TestWhatDoesNotFitIsFound is the twin of TestPartsFit.
func TestWhatDoesNotFitIsFound(t *testing.T) {
	for _, c := range []struct{ name, overlay, text, broken string }{
		{"a configuration elsewhere", "gateway/ports", "--config=/etc/offsetproxy/", "--config=/etc/"},
		{"another name of the file", "gateway/ports", "/offsetproxy.yaml", "/proxy.yaml"},
		{"a file that never changes", "gateway/ports", "name: config\n          readOnly: true", "name: config\n          subPath: a\n          readOnly: true"},
		{"a certificate elsewhere", "gateway/sni", "cert_file: /etc/offsetproxy-tls", "cert_file: /etc/tls"},
		{"an admin port that the kubelet cannot ask", "example", "listen: 0.0.0.0:9400", "listen: 127.0.0.1:9400"},
		{"another admin port", "example", "listen: 0.0.0.0:9400", "listen: 0.0.0.0:9401"},
		{"a sidecar for everybody", "example", "listen: 127.0.0.1:9092", "listen: 0.0.0.0:9092"},
		{"a sidecar that nobody waits for", "example", "startupProbe", "livenessProbe"},
		{"a drain without an end", "gateway/ports", "drain_timeout: 30s", "drain_timeout: 5m"},
		{"a gap in an update", "gateway/ports", "maxUnavailable: 0", "maxUnavailable: 1"},
		{"more buffers than memory", "gateway/ports", "max_buffered: 512MiB", "max_buffered: 1GiB"},
		{"no room for the collector", "gateway/ports", "value: 920MiB", "value: 1024MiB"},
		{"a broker without a port", "gateway/ports", "broker_ports: 9093-9098", "broker_ports: 9093-9099"},
		{"a port that leads elsewhere", "gateway/ports", "targetPort: 9094", "targetPort: 9095"},
		{"another name of the Service", "gateway/ports", "advertised_host: offsetproxy.", "advertised_host: gateway."},
		{"another port in TLS", "gateway/sni", "port: 443\n        tls", "port: 9443\n        tls"},
		{"no affinity", "gateway/sni", "  sessionAffinity: ClientIP\n  sessionAffinityConfig:\n    clientIP:\n      timeoutSeconds: 10800\n", ""},
		{"a budget of other Pods", "gateway/ports", "app: offsetproxy\n  unhealthyPod", "app: other\n  unhealthyPod"},
		{"clients kept out", "gateway/sni", "- port: 9443", "- port: 9444"},
		{"an admin port for everybody", "gateway/ports", "endPort: 9192", "endPort: 9400"},
		{"an autoscaler of something else", "gateway/ports", "kind: Deployment\n    name: offsetproxy", "kind: Deployment\n    name: other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := bytes.Join(render(t, c.overlay), []byte("\n---\n"))
			broken := bytes.Replace(whole, []byte(c.text), []byte(c.broken), 1)
			if bytes.Equal(broken, whole) {
				t.Fatalf("%q stands nowhere", c.text)
			}
			scheme := newScheme(t)
			var objects []object
			for document := range bytes.SplitSeq(broken, []byte("\n---\n")) {
				o, err := accept(scheme, document)
				if err != nil {
					return // found even earlier
				}
				objects = append(objects, o)
			}
			if got := fits(t, objects); len(got) == 0 {
				t.Error("nothing was found")
			}
		})
	}
}
