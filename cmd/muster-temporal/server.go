package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	clusterName = "active"
	// clusterID is stored at the first start and must be the same ever after.
	// No two of these servers are ever connected, so one for all will do.
	clusterID = "6d757374-6572-4d75-8000-74656d706f72"
	// shards is fixed by the first start too. One is the fastest on one file.
	shards = 1
	// readyTimeout bounds a start: one second where nothing else runs.
	readyTimeout = 2 * time.Minute
	readyPause   = 50 * time.Millisecond
	askTimeout   = 5 * time.Second
)

// newServer makes a server of all four services. Nothing runs before its Start.
func newServer(store *config.SQL, ports *ports, log *slog.Logger) (temporal.Server, error) {
	c := configuration(store, ports)
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range ports.byService {
		hosts[name] = static.SingleLocalHost(hostPort(port))
	}
	to := logger{log}
	authorizer, err := authorization.GetAuthorizerFromConfig(&c.Global.Authorization)
	if err != nil {
		return nil, fmt.Errorf("configure Temporal: %w", err)
	}
	claims, err := authorization.GetClaimMapperFromConfig(&c.Global.Authorization, to)
	if err != nil {
		return nil, fmt.Errorf("configure Temporal: %w", err)
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(c),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(to),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			// The defaults are for a cluster's share of a database; this is all of one.
			dynamicconfig.FrontendPersistenceMaxQPS.Key(): 10000,
			dynamicconfig.HistoryPersistenceMaxQPS.Key():  45000,
			// The defaults suit a machine that does nothing else.
			dynamicconfig.HistoryCacheHostLevelMaxSize.Key():            8096,
			dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("configure Temporal: %w", err)
	}
	return server, nil
}

func configuration(store *config.SQL, ports *ports) *config.Config {
	var c config.Config
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = loopback
	c.Persistence = config.Persistence{
		DefaultStore: "main", VisibilityStore: "visibility", NumHistoryShards: shards,
		DataStores: map[string]config.DataStore{"main": {SQL: store}, "visibility": {SQL: store}},
	}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled: true, InitialFailoverVersion: 1, ClusterID: clusterID, RPCAddress: ports.address(),
		}},
	}
	const disabled = "disabled"
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State, c.Archival.Visibility.State = disabled, disabled
	c.NamespaceDefaults.Archival.History.State, c.NamespaceDefaults.Archival.Visibility.State = disabled, disabled
	c.PublicClient.HostPort = ports.address()
	c.Services = map[string]config.Service{}
	for name, port := range ports.byService {
		var s config.Service
		s.RPC.GRPCPort, s.RPC.BindOnIP = port, loopback
		c.Services[string(name)] = s
	}
	return &c
}

// awaitReady returns when the server knows the namespace and can list its
// workflows, which needs each of its services but one.
func awaitReady(ctx context.Context, address, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("ask Temporal whether it is ready: %w", err)
	}
	defer conn.Close()
	frontend := workflowservice.NewWorkflowServiceClient(conn)
	for {
		err := ask(ctx, frontend, namespace)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Temporal does not become ready: %w", err)
		case <-time.After(readyPause):
		}
	}
}

func ask(ctx context.Context, frontend workflowservice.WorkflowServiceClient, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := frontend.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace}); err != nil {
		return err
	}
	_, err := frontend.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: namespace, PageSize: 1})
	return err
}
