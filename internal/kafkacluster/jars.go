package kafkacluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"text/template"
)

// copyGoal pins the Maven plugin, so that its defaults cannot change beneath us.
const copyGoal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// versionForm keeps a version from meaning something else as a path or as XML.
var versionForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+(-[A-Za-z0-9]+)?$`)

var pom = template.Must(template.New("pom").Parse(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>offsetproxy</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{{.}}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{{.}}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.24.3</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-1.2-api</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
`))

// FetchJars returns the directory with the jars of a Kafka version and its
// dependencies, downloading them if they are not cached. The cache is
// $KAFKA_JARS, else offsetproxy/kafka-jars in the user's cache directory, with
// a directory for each version. Concurrent processes are safe: one downloads,
// the others wait, and a directory appears whole or not at all.
func FetchJars(ctx context.Context, version string) (string, error) {
	if !versionForm.MatchString(version) {
		return "", fmt.Errorf("version %q is not of the form 4.1.1", version)
	}
	cache, err := jarCache()
	if err != nil {
		return "", err
	}
	jars := filepath.Join(cache, version)
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	}
	mvn, err := findTool(ctx, "mvn")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(cache, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(jars); err == nil {
		return jars, nil // another process was faster
	}
	if err := download(ctx, mvn, cache, version, jars); err != nil {
		return "", fmt.Errorf("fetch the jars of Kafka %s: %w", version, err)
	}
	return jars, nil
}

func jarCache() (string, error) {
	if dir := os.Getenv("KAFKA_JARS"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "offsetproxy", "kafka-jars"), nil
}

// download works beside the target, so that the rename at the end is atomic.
func download(ctx context.Context, mvn, cache, version, target string) error {
	work, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	project, err := os.Create(filepath.Join(work, "pom.xml"))
	if err != nil {
		return err
	}
	if err := pom.Execute(project, version); err != nil {
		return err
	}
	if err := project.Close(); err != nil {
		return err
	}
	jars := filepath.Join(work, "jars")
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", copyGoal, "-DoutputDirectory="+jars)
	cmd.Dir = work
	if output, err := cmd.CombinedOutput(); err != nil {
		return &ToolError{Tool: "mvn", Err: err, Output: lastLines(string(output), linesInError)}
	}
	return os.Rename(jars, target)
}

// lockFile waits for an exclusive lock between processes. The file stays: its
// removal would let two processes hold locks on different files of one name.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}
