package check

import (
	"errors"
	"fmt"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podoptions "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsv1 "k8s.io/kubernetes/pkg/apis/apps/v1"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	autoscalingv2 "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingv1 "k8s.io/kubernetes/pkg/apis/networking/v1"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyv1 "k8s.io/kubernetes/pkg/apis/policy/v1"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
)

// errNoValidation is of a kind that nobody here knows how to validate.
var errNoValidation = errors.New("no validation for this kind")

// newScheme knows the kinds of the manifests, as files have them and as Kubernetes
// validates them.
func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, corev1.AddToScheme,
		apps.AddToScheme, appsv1.AddToScheme,
		autoscaling.AddToScheme, autoscalingv2.AddToScheme,
		networking.AddToScheme, networkingv1.AddToScheme,
		policy.AddToScheme, policyv1.AddToScheme,
		monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// object is one of a manifest: as the file has it, and with defaults.
type object struct {
	kind      string
	name      string
	defaulted runtime.Object
}

// accept does with one document what an API server does before it stores an object.
func accept(scheme *runtime.Scheme, document []byte) (object, error) {
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	decoded, kind, err := codecs.UniversalDeserializer().Decode(document, nil, nil)
	if err != nil {
		return object{}, err
	}
	accepted := object{kind: kind.Kind, defaulted: decoded}
	named, ok := decoded.(interface{ GetName() string })
	if !ok || named.GetName() == "" {
		return object{}, fmt.Errorf("a %s without a name", kind.Kind)
	}
	accepted.name = named.GetName()
	if kind.Group == monitoring.SchemeGroupVersion.Group {
		return accepted, nil // the operator's own types; there is no more to ask
	}
	scheme.Default(decoded)
	internal, err := scheme.ConvertToVersion(decoded, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return object{}, err
	}
	faults, err := validate(internal)
	if err != nil {
		return object{}, fmt.Errorf("%s %s: %w", accepted.kind, accepted.name, err)
	}
	if len(faults) > 0 {
		return object{}, fmt.Errorf("%s %s: %w", accepted.kind, accepted.name, faults.ToAggregate())
	}
	return accepted, nil
}

// allocate fills in what an API server gives a new Service before it validates it.
func allocate(service *core.Service) {
	if service.Spec.ClusterIP == core.ClusterIPNone {
		service.Spec.ClusterIPs = []string{core.ClusterIPNone}
	}
	if service.Spec.Type == core.ServiceTypeLoadBalancer && service.Spec.ExternalTrafficPolicy == core.ServiceExternalTrafficPolicyLocal {
		service.Spec.HealthCheckNodePort = 30000
	}
}

// validate is Kubernetes' own, with what it allows for new objects.
func validate(internal runtime.Object) (field.ErrorList, error) {
	switch o := internal.(type) {
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o), nil
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o), nil
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(o), nil
	case *core.Service:
		allocate(o)
		return corevalidation.ValidateServiceCreate(o), nil
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, podoptions.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil)), nil
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{}), nil
	case *autoscaling.HorizontalPodAutoscaler:
		return autoscalingvalidation.ValidateHorizontalPodAutoscaler(o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{MinReplicasLowerBound: 1}), nil
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{}), nil
	default:
		return nil, errNoValidation
	}
}
