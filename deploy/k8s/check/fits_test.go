package check

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// deployment is an overlay whose proxies are held against what is around them.
type deployment struct {
	objects  []object
	pods     *appsv1.Deployment
	proxy    *corev1.Container
	settings settings
}

// fits lists what does not go together in an overlay with a proxy.
func fits(t *testing.T, objects []object) []string {
	t.Helper()
	d := deployment{objects: objects}
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, o := range objects {
		if pods, ok := o.defaulted.(*appsv1.Deployment); ok {
			d.pods = pods
		}
	}
	pod := &d.pods.Spec.Template.Spec
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if containers[i].Name == "offsetproxy" {
				d.proxy = &containers[i]
			}
		}
	}
	if d.proxy == nil {
		return []string{"no container offsetproxy"}
	}
	d.checkFiles(t, fault)
	if len(faults) > 0 {
		return faults // without its configuration there is nothing to compare
	}
	d.checkProbes(t, fault)
	d.checkTimes(t, fault)
	d.checkMemory(t, fault)
	d.checkServices(t, fault)
	d.checkSelectors(t, fault)
	return faults
}

// checkFiles reads the configuration, and looks for each file where it is mounted.
func (d *deployment) checkFiles(t *testing.T, fault func(string, ...any)) {
	t.Helper()
	config := ""
	for _, arg := range d.proxy.Args {
		if file, ok := strings.CutPrefix(arg, "--config="); ok {
			config = file
		}
	}
	volume := d.mounted(config, fault)
	if volume == nil || volume.ConfigMap == nil {
		fault("the configuration %q is in no ConfigMap that is mounted", config)
		return
	}
	text := ""
	for _, o := range d.objects {
		if m, ok := o.defaulted.(*corev1.ConfigMap); ok && m.Name == volume.ConfigMap.Name {
			text = m.Data[path.Base(config)]
		}
	}
	var err error
	if d.settings, err = readSettings(text); err != nil {
		fault("ConfigMap %s: %v", volume.ConfigMap.Name, err)
		return
	}
	for _, file := range d.settings.files() {
		if file == "" {
			continue
		}
		if volume := d.mounted(file, fault); volume == nil || volume.Secret == nil {
			fault("%s is in no Secret that is mounted", file)
		}
	}
}

// mounted is the volume that a file is in, or nil.
func (d *deployment) mounted(file string, fault func(string, ...any)) *corev1.Volume {
	for _, mount := range d.proxy.VolumeMounts {
		if mount.MountPath != path.Dir(file) {
			continue
		}
		if mount.SubPath != "" || mount.SubPathExpr != "" {
			fault("%s is mounted by subPath, and would never change", mount.MountPath)
		}
		for i, volume := range d.pods.Spec.Template.Spec.Volumes {
			if volume.Name == mount.Name {
				return &d.pods.Spec.Template.Spec.Volumes[i]
			}
		}
	}
	return nil
}

// checkProbes has the kubelet get to the admin port, and to no other.
func (d *deployment) checkProbes(t *testing.T, fault func(string, ...any)) {
	t.Helper()
	admin := listener{Listen: d.settings.Metrics.Listen}
	if admin.loopback(t) {
		fault("the admin port is on loopback, where the kubelet's probes do not get")
	}
	if d.proxy.ReadinessProbe == nil || d.proxy.LivenessProbe == nil {
		fault("readiness and liveness are not both asked for")
	}
	for name, probe := range map[string]*corev1.Probe{"/readyz": d.proxy.ReadinessProbe, "/livez": d.proxy.LivenessProbe, "/readyz at start": d.proxy.StartupProbe} {
		if probe == nil {
			continue
		}
		if got := d.port(probe.HTTPGet.Port.String()); got != admin.ports(t)[0] {
			fault("the probe of %s asks port %d, and metrics.listen is %s", name, got, admin.Listen)
		}
		if got := probe.HTTPGet.Path; got != strings.Fields(name)[0] {
			fault("the probe of %s asks for %s", name, got)
		}
	}
	sidecar := d.proxy.RestartPolicy != nil && *d.proxy.RestartPolicy == corev1.ContainerRestartPolicyAlways
	if sidecar != (d.proxy.StartupProbe != nil) {
		fault("a sidecar is waited for by a startup probe, a gateway is not")
	}
	for _, l := range d.settings.Listeners {
		if sidecar && !l.loopback(t) {
			fault("a sidecar that listens on %s, where others get", l.Listen)
		}
		if _, port := address(t, l.Listen); !l.loopback(t) && !slices.ContainsFunc(d.proxy.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) {
			fault("port %d of the configuration is none of the container's", port)
		}
	}
}

// port resolves a name of the container's ports, or a number.
func (d *deployment) port(name string) int32 {
	for _, p := range d.proxy.Ports {
		if p.Name == name || fmt.Sprint(p.ContainerPort) == name {
			return p.ContainerPort
		}
	}
	return 0
}

// checkTimes leaves a drain the time it takes.
func (d *deployment) checkTimes(t *testing.T, fault func(string, ...any)) {
	t.Helper()
	drain := parseTime(t, d.settings.Limits.DrainDelay) + parseTime(t, d.settings.Limits.DrainTimeout)
	grace := time.Duration(*d.pods.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if drain+5*time.Second > grace {
		fault("a drain takes %s, and the Pod is killed after %s", drain, grace)
	}
	if update := d.pods.Spec.Strategy.RollingUpdate; d.proxy.StartupProbe == nil && (update == nil || update.MaxUnavailable.String() != "0") {
		fault("an update of the gateway takes proxies away before others are ready")
	}
}

// checkMemory keeps what the proxy allows itself below what it is allowed.
func (d *deployment) checkMemory(t *testing.T, fault func(string, ...any)) {
	t.Helper()
	limit := d.proxy.Resources.Limits.Memory().Value()
	if buffered := parseSize(t, d.settings.Limits.MaxBuffered); buffered*2 > limit {
		fault("max_buffered is %d bytes of %d", buffered, limit)
	}
	for _, variable := range d.proxy.Env {
		if variable.Name != "GOMEMLIMIT" {
			continue
		}
		if soft := parseSize(t, variable.Value); soft > limit*9/10 || soft < limit*8/10 {
			fault("GOMEMLIMIT is %d bytes of %d: not about a tenth below", soft, limit)
		}
		return
	}
	fault("no GOMEMLIMIT")
}

// checkServices has every port that clients are told lead to where the proxy listens.
func (d *deployment) checkServices(t *testing.T, fault func(string, ...any)) {
	t.Helper()
	for _, o := range d.objects {
		service, ok := o.defaulted.(*corev1.Service)
		if !ok {
			continue
		}
		leads := map[int32]int32{}
		for _, p := range service.Spec.Ports {
			leads[p.Port] = d.port(p.TargetPort.String())
			if p.TargetPort.IntVal != 0 {
				leads[p.Port] = p.TargetPort.IntVal
			}
		}
		for _, l := range d.settings.Listeners {
			if l.loopback(t) {
				continue
			}
			want := map[int32]int32{}
			for _, port := range l.ports(t) {
				want[port] = port
			}
			if told := l.ServerNames.Port; told != 0 {
				want = map[int32]int32{told: l.ports(t)[0]}
			} else if name := service.Name + "." + service.Namespace + ".svc.cluster.local"; l.AdvertisedHost != name {
				fault("clients are told %s, and the Service is %s", l.AdvertisedHost, name)
			}
			if got, want := fmt.Sprint(leads), fmt.Sprint(want); got != want {
				fault("Service %s leads ports to ports as %s, and clients need %s", service.Name, got, want)
			}
		}
		if service.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
			fault("Service %s: a client that comes again meets another proxy", service.Name)
		}
	}
}

// checkSelectors has everything that selects Pods select these.
func (d *deployment) checkSelectors(t *testing.T, fault func(string, ...any)) {
	t.Helper()
	own := labels.Set(d.pods.Spec.Template.Labels)
	selects := func(what string, selector *metav1.LabelSelector) {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(own) {
			fault("%s selects other Pods: %v", what, err)
		}
	}
	for _, o := range d.objects {
		what := o.kind + " " + o.name
		switch o := o.defaulted.(type) {
		case *corev1.Service:
			selects(what, &metav1.LabelSelector{MatchLabels: o.Spec.Selector})
		case *policyv1.PodDisruptionBudget:
			selects(what, o.Spec.Selector)
		case *networkingv1.NetworkPolicy:
			selects(what, &o.Spec.PodSelector)
			d.checkPolicy(t, o, fault)
		case *autoscalingv2.HorizontalPodAutoscaler:
			if o.Spec.ScaleTargetRef.Name != d.pods.Name {
				fault("%s scales %s", what, o.Spec.ScaleTargetRef.Name)
			}
		}
	}
	for _, spread := range d.pods.Spec.Template.Spec.TopologySpreadConstraints {
		selects("the spread over "+spread.TopologyKey, spread.LabelSelector)
	}
}

// checkPolicy lets clients through to all their ports, and not all to the admin port.
func (d *deployment) checkPolicy(t *testing.T, policy *networkingv1.NetworkPolicy, fault func(string, ...any)) {
	t.Helper()
	open := func(port int32) bool { // to everybody
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				last := p.Port.IntVal
				if p.EndPort != nil {
					last = *p.EndPort
				}
				if len(rule.From) == 0 && p.Port.IntVal <= port && port <= last {
					return true
				}
			}
		}
		return false
	}
	for _, l := range d.settings.Listeners {
		for _, port := range l.ports(t) {
			if !l.loopback(t) && !open(port) {
				fault("NetworkPolicy %s keeps clients from port %d", policy.Name, port)
			}
		}
	}
	if _, admin := address(t, d.settings.Metrics.Listen); open(admin) {
		fault("NetworkPolicy %s lets everybody to the admin port", policy.Name)
	}
}

// withProxy are the overlays that have one.
var withProxy = []string{"example", "gateway/ports", "gateway/sni"}

// TestPartsFit compares manifests and configurations.
func TestPartsFit(t *testing.T) {
	for _, overlay := range withProxy {
		for _, fault := range fits(t, acceptAll(t, render(t, overlay))) {
			t.Errorf("%s: %s", overlay, fault)
		}
	}
}

func acceptAll(t *testing.T, documents [][]byte) []object {
	t.Helper()
	scheme := newScheme(t)
	var objects []object
	for _, document := range documents {
		o, err := accept(scheme, document)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

// TestMonitorsFindTheProxies holds them against what they are to collect from.
func TestMonitorsFindTheProxies(t *testing.T) {
	gateway, sidecar := acceptAll(t, render(t, "gateway/ports")), acceptAll(t, render(t, "example"))
	pods := func(objects []object) *corev1.PodTemplateSpec {
		for _, o := range objects {
			if d, ok := o.defaulted.(*appsv1.Deployment); ok {
				return &d.Spec.Template
			}
		}
		return nil
	}
	matches := func(selector metav1.LabelSelector, set map[string]string) bool {
		s, err := metav1.LabelSelectorAsSelector(&selector)
		return err == nil && !s.Empty() && s.Matches(labels.Set(set))
	}
	hasPort := func(pod *corev1.PodTemplateSpec, name string) bool {
		return bytes.Contains([]byte(pod.Spec.String()), []byte("Name:"+name+","))
	}
	var service *corev1.Service
	found := 0
	for _, o := range acceptAll(t, render(t, "monitoring")) {
		switch o := o.defaulted.(type) {
		case *corev1.Service:
			service = o
			if !matches(metav1.LabelSelector{MatchLabels: o.Spec.Selector}, pods(gateway).Labels) || !hasPort(pods(gateway), o.Spec.Ports[0].TargetPort.StrVal) {
				t.Errorf("Service %s does not lead to the gateway's admin port", o.Name)
			}
		case *monitoring.ServiceMonitor:
			found++
			if !matches(o.Spec.Selector, service.Labels) || o.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
				t.Errorf("ServiceMonitor %s does not find the Service", o.Name)
			}
		case *monitoring.PodMonitor:
			found++
			if !matches(o.Spec.Selector, pods(sidecar).Labels) || !hasPort(pods(sidecar), *o.Spec.PodMetricsEndpoints[0].Port) {
				t.Errorf("PodMonitor %s does not find the sidecars", o.Name)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d monitors, want 2", found)
	}
}
