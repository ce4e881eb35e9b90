package kafkacluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrMissingTool means that a program is not there and could not be installed;
// the message says what to install.
var ErrMissingTool = errors.New("program is missing")

// javaCommand builds command lines for the classes of one Kafka version.
type javaCommand struct {
	executable string
	jars       string // directory
}

// prepareJava finds Java and the jars of a version, and gets what is missing.
func prepareJava(ctx context.Context, version string) (javaCommand, error) {
	executable, err := findTool(ctx, "java")
	if err != nil {
		return javaCommand{}, err
	}
	jars, err := FetchJars(ctx, version)
	if err != nil {
		return javaCommand{}, err
	}
	return javaCommand{executable: executable, jars: jars}, nil
}

// quickJVM takes the JVM's quick start over its top speed: what runs for seconds spends
// most of its time on the second compiler otherwise.
const quickJVM = "-XX:TieredStopAtLevel=1"

func (j javaCommand) broker(heap string, quick bool, log4j, properties string) []string {
	command := []string{j.executable, "-Xmx" + heap, "-Xms256m", "-XX:+UseG1GC", "-Djava.awt.headless=true"}
	if quick {
		command = append(command, quickJVM)
	}
	return append(command, "-Dlog4j2.configurationFile="+log4j, "-cp", filepath.Join(j.jars, "*"), "kafka.Kafka", properties)
}

func (j javaCommand) tool(log4j, class string, args []string) []string {
	return append([]string{
		j.executable, "-Xmx256m", "-XX:+UseSerialGC", quickJVM,
		"-Dlog4j2.configurationFile=" + log4j, "-cp", filepath.Join(j.jars, "*"), class,
	}, args...)
}

// findTool looks for java or mvn, in JAVA_HOME first, and installs both on a
// Debian where this program may.
func findTool(ctx context.Context, name string) (string, error) {
	if path, err := lookTool(name); err == nil {
		return path, nil
	}
	if err := installJava(ctx); err != nil {
		return "", fmt.Errorf("%s: %w: install Java 17 or later and Maven (Debian: apt-get install openjdk-17-jre-headless maven): %w", name, ErrMissingTool, err)
	}
	path, err := lookTool(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w even after the installation of Java and Maven", name, ErrMissingTool)
	}
	return path, nil
}

func lookTool(name string) (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if path, err := exec.LookPath(filepath.Join(home, "bin", name)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// installJava is for bare machines and containers that run the tests; it
// touches a system only where the program is root, and only Debian's kind.
func installJava(ctx context.Context) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("no apt-get to install them with")
	}
	if os.Geteuid() != 0 {
		return errors.New("not root, so not installed automatically")
	}
	for _, args := range [][]string{
		{"update", "-q"},
		{"install", "-q", "-y", "--no-install-recommends", "openjdk-17-jre-headless", "maven"},
	} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLines(string(output), 1))
		}
	}
	return nil
}
