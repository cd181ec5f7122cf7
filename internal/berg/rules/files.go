package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// imageFolders are folders of practically every image. No container starts with a file mounted on a folder.
var imageFolders = []string{
	"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin",
	"/srv", "/sys", "/tmp", "/usr", "/var",
	"/usr/bin", "/usr/games", "/usr/include", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local", "/usr/local/bin",
	"/usr/local/etc", "/usr/local/lib", "/usr/local/sbin", "/usr/local/share", "/usr/sbin", "/usr/share", "/usr/src",
	"/var/cache", "/var/lib", "/var/log", "/var/run", "/var/spool", "/var/tmp", "/var/www", "/var/www/html",
	"/etc/ssl", "/etc/ssl/certs", "/dev/shm", "/dev/pts", "/dev/mqueue", "/dev/fd",
}

// runtimeFiles are files that the kubelet or the container runtime mounts or creates itself.
var runtimeFiles = []string{
	"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log",
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/console", "/dev/ptmx",
	"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/core", "/.dockerenv",
}

// runtimeFolders are file systems in which no file can be mounted, or not by a Challenge.
var runtimeFolders = map[string]string{ //nolint:gosec // paths, no credentials
	"/proc":                          "no container starts with a file mounted there",
	"/sys":                           "it is read-only, and no container starts with a file mounted there",
	"/dev/pts":                       "it has terminals only",
	"/dev/mqueue":                    "it has message queues only",
	"/dev/fd":                        "it is a link into /proc",
	"/var/run/secrets/kubernetes.io": "Kubernetes mounts its tokens there",
	"/run/secrets/kubernetes.io":     "Kubernetes mounts its tokens there",
}

// imageFiles are files of practically every image. They cannot be folders of a flag.
var imageFiles = []string{
	"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/os-release", "/etc/nsswitch.conf", "/etc/profile",
	"/etc/shells", "/etc/services", "/etc/protocols", "/etc/issue", "/etc/fstab", "/etc/sudoers",
	"/bin/sh", "/bin/bash", "/usr/bin/env", "/bin/cat", "/bin/ls",
}

// fileExtensions are endings of file names, rarely of folder names.
var fileExtensions = []string{
	".txt", ".py", ".sh", ".php", ".html", ".js", ".json", ".conf", ".cfg", ".ini", ".db", ".sqlite", ".so", ".md", ".log", ".env", ".pem",
	".key", ".crt", ".yaml", ".yml", ".jar", ".rb", ".pl", ".c", ".cpp", ".zip", ".tar", ".gz",
}

// filePathProblem returns why no file can be mounted at a clean, absolute path, "" if nothing is known against it.
func filePathProblem(file string) string {
	if slices.Contains(runtimeFiles, file) {
		return "must not be a file of the container runtime: the kubelet writes " + file + " itself. Choose another path, for example /flag.txt"
	}
	if slices.Contains(imageFolders, file) {
		return fmt.Sprintf("must be a file: %s is a folder in images, and no container starts with a file mounted on a folder. Add a file name, for example %s",
			file, path.Join(file, "flag.txt"))
	}
	for _, folder := range parents(file) {
		if reason, reserved := runtimeFolders[folder]; reserved {
			return fmt.Sprintf("must not be in %s: %s", folder, reason)
		}
		if slices.Contains(runtimeFiles, folder) || slices.Contains(imageFiles, folder) {
			return fmt.Sprintf("must not be below %s, which is a file in images: no container starts with a file mounted below a file", folder)
		}
	}
	return ""
}

// fileBelow returns the parent of a path that has the name of a file, "" if none has.
func fileBelow(file string) string {
	for _, folder := range parents(file) {
		if slices.Contains(fileExtensions, strings.ToLower(path.Ext(folder))) && !strings.HasPrefix(path.Base(folder), ".") {
			return folder
		}
	}
	return ""
}

// UsuallyFolder reports whether images usually have a folder at a path, by their base or by their author.
func UsuallyFolder(file string) bool {
	return slices.Contains(imageFolders, file) || isLikelyFolder(file)
}

// isLikelyFolder reports whether authors usually have a folder at a path: a home, or the folder of a program.
func isLikelyFolder(file string) bool {
	if path.Ext(file) != "" || strings.Contains(file, EntropyPlaceholder) || strings.Contains(strings.ToLower(path.Base(file)), "flag") {
		return false
	}
	return path.Dir(file) == "/home" || slices.Contains([]string{"/app", "/application", "/challenge", "/chall", "/ctf", "/code", "/src", "/service", "/work", "/workspace", "/data", "/usr/app", "/usr/src/app", "/opt/app", "/srv/app"}, file)
}

// parents are the folders above a file, without the root.
func parents(file string) (all []string) {
	for dir := path.Dir(file); dir != "/" && dir != "."; dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}
