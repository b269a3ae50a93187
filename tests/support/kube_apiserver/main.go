// One program that is a Kubernetes API server with the etcd that it stores in: kubernetes_cluster.py starts it.
package main

import (
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	etcd, err := embed.StartEtcd(etcdConfig())
	if err != nil {
		panic(err)
	}
	<-etcd.Server.ReadyNotify()
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}

// Its folder and its two addresses come in the environment: the arguments are all the API server's.
func etcdConfig() *embed.Config {
	config := embed.NewConfig()
	config.Dir = os.Getenv("ETCD_DIR")
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	clients, peers := address("ETCD_CLIENTS"), address("ETCD_PEERS")
	config.ListenClientUrls, config.AdvertiseClientUrls = clients, clients
	config.ListenPeerUrls, config.AdvertisePeerUrls = peers, peers
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	return config
}

func address(variable string) []url.URL {
	parsed, err := url.Parse(os.Getenv(variable))
	if err != nil {
		panic(err)
	}
	return []url.URL{*parsed}
}
