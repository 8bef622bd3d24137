"""Kafka's error codes, and the one exception by which a room refuses a request.

Rooms raise `BrokerError(code, message)`; only the router and the handlers turn it into a reply. What is wrong in
our own code is an `AssertionError` or whatever Python raises: it is logged and answered UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether a client may repeat the same request and hope for another answer."""
        return self in _RETRIABLE

    @property
    def description(self) -> str:
        """What the code means, in one line, for people."""
        return _DESCRIPTIONS[self]


_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.REBOOTSTRAP_REQUIRED,
    }
)


_DESCRIPTIONS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The broker failed in a way it did not foresee; its log says how.",
    ErrorCode.NONE: "Done.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The partition has no such offset: it was deleted already or is not written yet.",
    ErrorCode.CORRUPT_MESSAGE: "The batch's checksum does not fit its bytes, or it is malformed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This broker knows no such topic or partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch asks for a size that cannot be.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment; try again shortly.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker does not hold or lead the partition; ask for metadata.",
    ErrorCode.REQUEST_TIMED_OUT: "The request's time ran out; it may still take effect.",
    ErrorCode.BROKER_NOT_AVAILABLE: "That broker is not in the cluster.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "That replica cannot be reached.",
    ErrorCode.MESSAGE_TOO_LARGE: "The batch is larger than max.message.bytes of the topic.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The request is from a controller that has been replaced.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The note of the commit is longer than offset.metadata.max.bytes.",
    ErrorCode.NETWORK_EXCEPTION: "The connection broke before the answer came.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still reading its state; try again shortly.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is no coordinator at the moment; try again shortly.",
    ErrorCode.NOT_COORDINATOR: "This broker is not the coordinator; look it up again.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic's name is not allowed, or the topic is internal.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The batch is larger than a whole segment.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas asks; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Written, but to fewer replicas than min.insync.replicas.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or -1 (all).",
    ErrorCode.ILLEGAL_GENERATION: "The group has moved on to another generation; join again.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member supports none of the protocols that the group's members share.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not allowed; it may be empty.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has no such member; join again.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout lies outside of what the broker allows.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is dividing its partitions anew; join again.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The commit is too large to be stored.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "This user may not do that with the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "This user may not do that with the group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "This user may not do that with the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "A record's timestamp is further from the broker's time than the topic allows.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The listener does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit the state of the authentication.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not speak this version of the request.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "There is a topic of this name already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions cannot be.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The number of replicas is below one or above the number of brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The assignment of replicas to brokers is not possible.",
    ErrorCode.INVALID_CONFIG: "A configuration key or value is not allowed.",
    ErrorCode.NOT_CONTROLLER: "This broker is not the controller; ask for metadata and go there.",
    ErrorCode.INVALID_REQUEST: "The request contradicts itself or leaves out what it needs.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The records' format does not allow this; use version 2.",
    ErrorCode.POLICY_VIOLATION: "The broker's policy forbids these parameters.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "A batch of this producer is missing before this one.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The broker has a batch with this sequence number already.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A newer instance of this producer is at work; this one must stop.",
    ErrorCode.INVALID_TXN_STATE: "The transaction is not in a state that allows this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is longer than transaction.max.timeout.ms.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The transaction before this one is still being finished; try again shortly.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "The marker is from a transaction coordinator that has been replaced.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "This user may not use the transactional id.",
    ErrorCode.SECURITY_DISABLED: "The broker has no authorizer, so it has no ACLs.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "This part was not tried because another part of the request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk failed; the broker's log says which directory.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "The user name or the password is wrong.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker knows nothing of this producer; its records may have been deleted.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition is being moved already.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The broker has no delegation tokens.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The delegation token belongs to somebody else.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens cannot be asked for on this connection.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "This user may not do that with the delegation token.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token is too old.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "This kind of principal is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker no longer has this fetch session; begin a new one.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch is not the next one of its session; begin a new one.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no address on the listener that the client came by.",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false.",
    ErrorCode.FENCED_LEADER_EPOCH: "The client's leader epoch is older than the partition's; ask for metadata.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The client's leader epoch is newer than this broker knows; try again shortly.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "This client's version cannot read the topic's compression.",
    ErrorCode.STALE_BROKER_EPOCH: "The request was meant for an earlier life of this broker.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader does not know its high watermark yet; try again shortly.",
    ErrorCode.MEMBER_ID_REQUIRED: "Join again with the member id that this answer gives.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not alive or not in sync.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as it may.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has taken over this group.instance.id; this one must stop.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica is alive that may lead.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition is led already by the one that the election would choose.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being moved.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Members of the group still subscribe to the topic.",
    ErrorCode.INVALID_RECORD: "A record is not allowed in this topic; a compacted one needs keys.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "An open transaction may still change the committed offset; try again shortly.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The user changes more topics than its quota allows; try again later.",
    ErrorCode.PRODUCER_FENCED: "A newer producer with this transactional id is at work; this one must stop.",
    ErrorCode.RESOURCE_NOT_FOUND: "There is no such resource.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names a resource twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet what is asked of one.",
    ErrorCode.INCONSISTENT_VOTER_SET: "The voters named are not those of the quorum.",
    ErrorCode.INVALID_UPDATE_VERSION: "The version given for the update is wrong.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The feature could not be changed.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The principal in a forwarded request cannot be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The snapshot has no such position.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker knows no topic with this id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "A live broker has this broker id.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker has this broker id.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic id does not belong to the topic of this name.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request was meant for another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "A fetch session cannot mix topic ids and names; begin a new one.",
    ErrorCode.INELIGIBLE_REPLICA: "The replica may not join the in-sync replicas; it may be shutting down.",
    ErrorCode.NEW_LEADER_ELECTED: "The change made another replica the leader; ask for metadata.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is no longer on this broker's disk but in remote storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member's epoch is not the group's; join again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another live member has this group.instance.id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The broker has no such assignor.",
    ErrorCode.STALE_MEMBER_EPOCH: "The member's epoch is old; take the newer one from a heartbeat and try again.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was meant for another kind of endpoint.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller with this id.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The client's metrics subscription is out of date; ask for it again.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The client sent more metrics than the broker takes.",
    ErrorCode.INVALID_REGISTRATION: "The broker's registration is not possible.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction cannot go on; abort it and begin another.",
    ErrorCode.INVALID_RECORD_STATE: "The record is not in a state that allows this acknowledgement.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker no longer has this share session; begin a new one.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The request is not the next one of its share session; begin a new one.",
    ErrorCode.FENCED_STATE_EPOCH: "The share coordinator has a newer state epoch.",
    ErrorCode.INVALID_VOTER_KEY: "The voter's key does not belong to this quorum member.",
    ErrorCode.DUPLICATE_VOTER: "The quorum has this voter already.",
    ErrorCode.VOTER_NOT_FOUND: "The quorum has no such voter.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The pattern is not a regular expression that the broker understands.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client's view of the cluster is too old; begin from its bootstrap servers.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The streams topology is not possible.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The streams topology epoch is not possible.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The streams topology epoch is old.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has as many share sessions as it may.",
}


class BrokerError(Exception):
    """A request, or a part of one, is refused with `code`. The message says what to do about it."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code

    @property
    def message(self) -> str:
        return str(self)


class PeerUnreachable(ConnectionError):  # noqa: N818 - named for the state of things
    """Another broker gave no answer. It may or may not have done what it was asked to."""
