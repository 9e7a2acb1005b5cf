// kubectl by itself: as a part of `kube` each call of it would initialize all of Kubernetes, which doubles its CPU.
package main

import (
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// kubectl prints its own errors, in words of its own.
func main() {
	util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
}
