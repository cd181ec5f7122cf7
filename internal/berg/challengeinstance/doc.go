// Package challengeinstance admits, builds, watches and terminates ChallengeInstances.
//
// Three controllers share the instances, and no two of them write the same instance:
//
//	admit   (admit.go)       one worker: decides which pending instances start
//	run     (controller.go)  builds started instances, and carries out all deletions (finalize.go)
//	expire  (expiry.go)      requests the deletion of expired instances
//
// A fourth controller deletes namespaces whose instance no longer exists (orphans.go). A started instance is reconciled by the
// frame kit/reconcile, with these steps:
//
//	observe   (observe.go)    all reads, once, into one status.Observed
//	check     (status)        pure: may this instance be built, and if not, why
//	decide    (rollout.go, namespacetoken.go)  content and namespace token: a new one is persisted before objects are written
//	plan      (manifests)     pure: every object that it should consist of
//	apply     (build.go, kit/apply)  the only writes of children
//	connect   (controller.go) do its ports accept connections
//	status    (status)        pure: phase, conditions and endpoints, written in one patch
//
// The package manifests has the builders, in files named after the object they build; the
// package status has the checks, the conditions and the times. Neither has a client or a
// clock.
//
// # From the watch event to Running
//
// These are the steps of one start in the order of time, with the file and the function of each. A file of another package
// stands behind its folder, without its ending. A later reconciliation repeats the steps of a reconciliation and changes
// nothing that is in place, so a line stands where the start needs its function for the first time.
//
// The admitter starts the instance:
//
//	admit.go                 admissionChanged     passes the creation of the instance
//	admit_list.go            list                 reads the pending instances
//	admit_round.go           observeRound         reads Challenges, nodes, started instances and namespaces of owners
//	status/checks            CheckAlone           checks whether the Challenge can be built for the instance
//	admit.go                 writes               selects the starts of this round
//	admission/admission      Decide               admits the first instance of an owner, below every limit
//	admit.go                 write                starts the instance, with the lines down to reportStarted
//	kit/finalizer            Ensure               persists the finalizer, so that no deletion is missed from here on
//	rollout.go               store                makes the content from the Challenge and the settings
//	revisions/store          Ensure               stores the content in a Secret, unless one has it
//	status/identity          Identify             sets the ID, the start and the digest of the namespace token
//	status/status            Compute              computes the phase Creating
//	kit/reconcile/kind       PatchStatus          persists the start: now the instance counts against limits
//	events.go                reportStarted        records the event
//
// The controller of started instances builds it:
//
//	watches.go               justStarted          passes the update of that status
//	watches.go               enqueueInstance      enqueues the instance with the priority of starts
//	kit/reconcile/kind       live                 makes the reconciliation, with the lines down to computePhase
//	observe.go               observe              reads Challenge, content, namespace, Deployments and pods
//	status/checks            NamespaceIsOurs      checks that no other namespace has the name
//	controller.go            apply                decides and builds
//	rollout.go               adopt                returns nil: the instance keeps the content of its start
//	namespacetoken.go        prepareNamespace     confirms that this process has the namespace token
//	build.go                 build                applies the plan, with the lines down to PlanWorkloads
//	manifests/plan           PlanFoundation       plans all objects except Deployments
//	kit/apply/steps          Steps                creates the namespace, then policies, Services, routes and ConfigMaps
//	nodeports.go             applyService         creates a Service, for which the API server allocates node ports
//	manifests/endpoints      PortEndpoints        calculates the addresses from the node ports
//	pullsecrets.go           copyPullSecrets      copies the pull secret
//	manifests/plan           PlanWorkloads        plans the Deployments, which Steps creates last
//	status/status            computePhase         returns Starting
//
// Kubernetes starts the pods, and their events lead to the last reconciliations:
//
//	predicates.go            podChanged           passes changes of a pod that the status shows
//	watches.go               firstReady.Update    enqueues the instance before all others as soon as its pod runs
//	controller.go            connect              starts connections, and does not wait for them
//	status/connect           ToOpen               names the ports of pods that run and are not ready yet
//	reach/reach              Early                connects to them, and enqueues the instance when all accept
//	status/connect           ToConnect            names the node ports, if the pods are ready before that
//	reach/reach              Over                 connects to them, and enqueues the instance when it need not wait longer
//	gateway.go               observeWays          reads the Gateway, its answers to the routes, the Services and their endpoints
//	status/reachable         findObstacle         names what keeps players from pods that are ready
//	status/reachable         ToGate               names the listeners of the Gateway, if there is no obstacle
//	reach/reach              Gate                 connects to them, as Over does
//	status/status            Compute              sets readyAt and the phase Running, in the status that PatchStatus persists
//	events.go                report               records the event and the times of the stages
//
// # After a kill
//
// The operator may be killed after any write. This is left, and what the next leader makes of it:
//
//	the finalizer, no start             the instance waits, and the next round decides about it
//	the content, no start               no instance names the Secret, and a later sweep deletes it
//	a claim, no start                   the next round finds the claim and starts the instance with it
//	a start, no namespace               no process knows the secret of the token: prepareNamespace asks the API server and draws another
//	a part of the objects               the build finds them in place, and continues behind them
//	spec.terminationReason, no deletion the controller of expiries deletes instances that have a reason
//	a namespace that is being deleted   its events lead to finalize, which begins with observations again
//	Terminated, and the finalizer       finalize finds no namespace, writes nothing, and takes the finalizer off
//
// What only memory knows costs time, and decides nothing: see the table in docs/adr/0032-one-admission.md.
//
// # Secrets
//
// A flag is in spec.flag, in the content and in objects of the instance's namespace. It is in no log, event, condition or error:
// an error of the API server may quote an object, so each passes redact.Error or redact.Text before it leaves this package.
//
// # Other files
//
//	reconciler.go   the dependencies and the state in memory
//	finalize.go     brings a deletion a step further
//	claim.go        what becomes of a prepared instance that a player gets: handed over, and its pods notified
//	admit_round.go  the observations of one decision of package admission
//	admit_list.go   lists the instances, from the cache or from the API server
//	queuemetrics.go the number of instances that wait
//	capacity.go     the free capacity, and the node ports in use
//	revisions.go    deletes stored contents that no instance names
//	gateway.go      the cache of the Gateway, and which of its events lead to a reconciliation
//	gate.go         the replicas of the gate, and their answers about routes
//	playerreader.go a reader that leaves out prepared instances
//	optional.go     the kinds that a cluster may lack
//	watches.go      which events lead to a reconciliation, and with which priority
//	predicates.go   the filters and mappings of events
//	terminate.go    requests the deletion of one instance
//	nodeports.go    writes Services and keeps their node ports
//	pullsecrets.go  copies the pull secret, and decides which copy a container uses
//	policies.go     which kinds of network policy are used, and the removal of other kinds
//	retry.go        triggers the creation of pods that Kubernetes refused
//	keep.go         gives the recorder an instance before its namespace is deleted
//	events.go, metrics.go  events and metrics
package challengeinstance
