package check

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	ofTarget   = regexp.MustCompile(`\bdeployment/(\S+)`)
	ofFlag     = map[string]*regexp.Regexp{}
)

// flagOf reads a flag of kubectl, as -n NAME or --container NAME.
func flagOf(command, flag string) string {
	pattern := ofFlag[flag]
	if pattern == nil {
		pattern = regexp.MustCompile(`(?:^| )` + flag + `[= ](\S+)`)
		ofFlag[flag] = pattern
	}
	if found := pattern.FindStringSubmatch(command); found != nil {
		return found[1]
	}
	return ""
}

// cluster is what there is when all overlays are applied.
type cluster struct {
	deployments map[string]*appsv1.Deployment // by namespace/name
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{map[string]*appsv1.Deployment{}}
	for overlay := range overlays {
		for _, o := range acceptAll(t, render(t, overlay)) {
			d, ok := o.defaulted.(*appsv1.Deployment)
			if !ok {
				continue
			}
			at := d.Namespace + "/" + d.Name
			// Of the two gateways, that with Secrets.
			if before := c.deployments[at]; before == nil || len(before.Spec.Template.Spec.Volumes) < len(d.Spec.Template.Spec.Volumes) {
				c.deployments[at] = d
			}
		}
	}
	return c
}

// fault says what a command of kubectl names that there is not.
func (c cluster) fault(command string) string {
	if dir := flagOf(command, "-k"); dir != "" && overlays[strings.TrimPrefix(dir, "deploy/k8s/")] == 0 {
		return "there is no overlay " + dir
	}
	namespace := flagOf(command, "-n")
	if secret := regexp.MustCompile(`create secret (?:tls|generic) (\S+)`).FindStringSubmatch(command); secret != nil {
		return c.secretFault(namespace, secret[1], command)
	}
	if selector := flagOf(command, "--selector"); selector != "" {
		for name, d := range c.deployments {
			parsed, err := labels.Parse(selector)
			if err == nil && path.Dir(name) == namespace && parsed.Matches(labels.Set(d.Spec.Template.Labels)) {
				return c.containerFault(d, command)
			}
		}
		return "nothing has the label " + selector
	}
	target := ofTarget.FindStringSubmatch(command)
	if target == nil {
		return ""
	}
	d := c.deployments[namespace+"/"+target[1]]
	if d == nil {
		return fmt.Sprintf("there is no Deployment %s in %s", target[1], namespace)
	}
	return c.containerFault(d, command)
}

// containerFault looks for a container, its program and its port.
func (c cluster) containerFault(d *appsv1.Deployment, command string) string {
	containers := slices.Concat(d.Spec.Template.Spec.Containers, d.Spec.Template.Spec.InitContainers)
	chosen := containers[0].Name // as kubectl does
	if name := flagOf(command, "--container"); name != "" {
		chosen = name
	}
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == chosen })
	if at < 0 {
		return fmt.Sprintf("Deployment %s has no container %s", d.Name, chosen)
	}
	if _, argv, found := strings.Cut(command, " -- "); found && chosen == "offsetproxy" && !strings.HasPrefix(argv, "/offsetproxy ") {
		return "the image has no " + argv
	}
	if _, port, found := strings.Cut(command, "port-forward "); found {
		port = port[strings.LastIndex(port, " ")+1:]
		for _, container := range containers {
			for _, p := range container.Ports {
				if fmt.Sprint(p.ContainerPort) == port {
					return ""
				}
			}
		}
		return "nothing is at port " + port
	}
	return ""
}

// secretFault holds a Secret that is made against the Pods that mount it, and their
// configuration.
func (c cluster) secretFault(namespace, name, command string) string {
	made := []string{"tls.crt", "tls.key"}
	if strings.Contains(command, " generic ") {
		made = nil
		for _, found := range regexp.MustCompile(`--from-file=(\S+)`).FindAllStringSubmatch(command, -1) {
			made = append(made, path.Base(found[1]))
		}
	}
	for at, d := range c.deployments {
		if path.Dir(at) != namespace {
			continue
		}
		pod := d.Spec.Template.Spec
		for _, volume := range pod.Volumes {
			if volume.Secret == nil || volume.Secret.SecretName != name {
				continue
			}
			for _, mount := range pod.Containers[0].VolumeMounts {
				if mount.Name != volume.Name {
					continue
				}
				text, err := os.ReadFile("../gateway/sni/offsetproxy.yaml")
				if err != nil {
					return err.Error()
				}
				for _, file := range made {
					if !strings.Contains(string(text), mount.MountPath+"/"+file+"\n") {
						return fmt.Sprintf("the configuration asks for no %s/%s", mount.MountPath, file)
					}
				}
				if wanted := strings.Count(string(text), ": "+mount.MountPath+"/"); wanted != len(made) {
					return fmt.Sprintf("the configuration asks for %d files of %s, and %q are made", wanted, mount.MountPath, made)
				}
				return ""
			}
		}
	}
	return "nothing mounts the Secret " + name
}

// TestGuidesNameWhatThereIs reads the commands of the guides.
func TestGuidesNameWhatThereIs(t *testing.T) {
	c := newCluster(t)
	for _, guide := range []string{"sidecar.md", "gateway.md"} {
		text, err := os.ReadFile(filepath.Join("../../../docs", guide))
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for command := range strings.Lines(block[1]) {
				if command = strings.TrimSpace(command); strings.HasPrefix(command, "kubectl ") {
					seen++
					if fault := c.fault(command); fault != "" {
						t.Errorf("%s: %s: %s", guide, command, fault)
					}
				}
			}
		}
		if seen < 10 {
			t.Errorf("%s has only %d commands of kubectl", guide, seen)
		}
	}
}

// TestWrongCommandsAreFound is its twin.
func TestWrongCommandsAreFound(t *testing.T) {
	c := newCluster(t)
	for _, command := range []string{
		"kubectl apply -k deploy/k8s/gateway",
		"kubectl -n orders rollout status deployment/order",
		"kubectl -n kafka rollout status deployment/orders",
		"kubectl -n orders logs --selector app=order --tail 3",
		"kubectl -n orders logs --selector app=orders --container proxy",
		"kubectl -n orders exec deployment/orders --container offsetproxy -- /bin/sh",
		"kubectl -n orders port-forward deployment/orders 9401",
		"kubectl -n offsetproxy create secret tls offsetproxy-cert --cert=a --key=b",
		"kubectl -n offsetproxy create secret generic offsetproxy-users --from-file=user.yaml",
		"kubectl -n offsetproxy create secret generic offsetproxy-upstream --from-file=ca.crt",
	} {
		if c.fault(command) == "" {
			t.Errorf("nothing is wrong with %s", command)
		}
	}
}
