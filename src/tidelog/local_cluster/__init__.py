"""A cluster on this machine, for development and tests: ZooKeeper and brokers as processes of their own.

It starts, stops and looks at processes, and asks the cluster as any client does. It imports nothing of the broker.
"""
