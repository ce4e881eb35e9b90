package check

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// pod is a Pod as NetworkPolicies see it.
type pod struct {
	namespace string
	labels    map[string]string
}

// podsOf is that of a Deployment, namespace/name.
func podsOf(t *testing.T, deployment string) pod {
	t.Helper()
	d := newCluster(t).deployments[deployment]
	if d == nil {
		t.Fatalf("no Deployment %s", deployment)
	}
	return pod{d.Namespace, d.Spec.Template.Labels}
}

// selects is false for a selector that is not there.
func selects(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	if selector == nil {
		return false
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Matches(labels.Set(set))
}

// lets says whether a policy lets a Pod in, on a port.
func lets(t *testing.T, policy *networkingv1.NetworkPolicy, from pod, port int32) bool {
	t.Helper()
	for _, rule := range policy.Spec.Ingress {
		open := len(rule.Ports) == 0
		for _, p := range rule.Ports {
			open = open || p.Port.IntVal == port
		}
		for _, peer := range rule.From {
			// Kubernetes gives each namespace its name as this label.
			near := peer.NamespaceSelector == nil && from.namespace == policy.Namespace ||
				selects(t, peer.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": from.namespace})
			if open && near && (peer.PodSelector == nil || selects(t, peer.PodSelector, from.labels)) {
				return true
			}
		}
		if open && len(rule.From) == 0 {
			return true
		}
	}
	return false
}

// TestOnlyTheGatewayGetsToBrokers says who the policy for the brokers lets in.
func TestOnlyTheGatewayGetsToBrokers(t *testing.T) {
	policy, ok := acceptAll(t, render(t, "brokers"))[0].defaulted.(*networkingv1.NetworkPolicy)
	if !ok {
		t.Fatal("no NetworkPolicy")
	}
	broker, gateway, application := podsOf(t, "kafka/kafka"), podsOf(t, "offsetproxy/offsetproxy"), podsOf(t, "orders/orders")
	if policy.Namespace != broker.namespace || !selects(t, &policy.Spec.PodSelector, broker.labels) {
		t.Error("the policy is not about the brokers")
	}
	for _, c := range []struct {
		name string
		from pod
		port int32
		want bool
	}{
		{"the gateway", gateway, 9092, true},
		{"the gateway, in TLS", gateway, 9093, true},
		{"the gateway, at a controller", gateway, 9094, false},
		{"a broker, at a controller", broker, 9094, true},
		{"an application", application, 9092, false},
		{"another Pod beside the gateway", pod{gateway.namespace, map[string]string{"app": "other"}}, 9092, false},
		{"a Pod elsewhere that looks like the gateway", pod{"other", gateway.labels}, 9092, false},
		{"a Pod elsewhere that looks like a broker", pod{"other", broker.labels}, 9092, false},
		{"another Pod beside the brokers", pod{broker.namespace, nil}, 9092, false},
	} {
		if got := lets(t, policy, c.from, c.port); got != c.want {
			t.Errorf("%s: let in is %v, want %v", c.name, got, c.want)
		}
	}
}
