"""The production form of a region's NATS, from one file that says what there is.

    topology.yaml --topology--> NatsTopology --permissions--> who may what --files--> nats-*.conf

All of it is pure but reading and writing those files (`command`): the same topology gives the same
text. Why the permissions are as they are is in docs/adr/0010-nats-accounts-and-permissions.md.
"""
