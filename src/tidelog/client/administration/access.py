"""Who may do what: access rules (ACLs)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from tidelog.client.administration.asking import Asking, outcome_of
from tidelog.client.errors import BadReply, check
from tidelog.client.outcomes import Outcomes
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.wire.messages.delete_acls import DeleteAclsMatchingAcl
    from tidelog.wire.messages.describe_acls import AclDescription, DescribeAclsResource

E = TypeVar("E", bound=IntEnum)


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: every rule that has a say about the resource of this name, whatever its pattern."""
    LITERAL = 3
    """The resource of this name; `*` is all of them."""
    PREFIXED = 4
    """All resources whose name starts like this."""


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""What the one resource of type CLUSTER is called."""


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule: this principal may (or may not) do this with these resources, from this host."""

    resource_type: ResourceType
    resource_name: str
    principal: str
    """Such as User:alice, or User:* for everybody."""
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on {self.resource_type.name} "
            f"{self.resource_name} ({self.pattern_type.name}) from {self.host}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Rules that are as it says; what is not said may be anything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    @classmethod
    def exactly(cls, acl: Acl) -> AclFilter:
        return cls(
            acl.resource_type,
            acl.resource_name,
            acl.principal,
            acl.operation,
            acl.permission,
            acl.host,
            acl.pattern_type,
        )


class AccessAdmin(Asking):
    async def describe_acls(self, matching: AclFilter | None = None) -> list[Acl]:
        """The rules that match, or all. BrokerError(SECURITY_DISABLED): the broker has no authorizer."""
        wanted = matching or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        reply = await self._ask(None, "describing ACLs", request, DescribeAclsResponse, lambda r: r.error_code)
        return [_acl(resource, rule) for resource in reply.resources for rule in resource.acls]

    async def create_acls(self, acls: Iterable[Acl]) -> Outcomes[Acl, None]:
        """None: it holds from now on. One that was there already is no error."""
        chosen = list(acls)
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in chosen
            ]
        )
        reply = await self._ask_controller(
            "creating ACLs", request, CreateAclsResponse, lambda r: [result.error_code for result in r.results]
        )
        if len(reply.results) != len(chosen):
            raise BadReply(f"{len(chosen)} ACLs were to be created, and the answer is about {len(reply.results)}")
        return Outcomes(
            (acl, outcome_of(result.error_code, result.error_message, str(acl), None))
            for acl, result in zip(chosen, reply.results, strict=True)
        )

    async def delete_acls(self, matching: Iterable[AclFilter]) -> Outcomes[AclFilter, list[Acl]]:
        """For each filter the rules that it has deleted."""
        chosen = list(matching)
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.resource_name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in chosen
            ]
        )
        reply = await self._ask_controller(
            "deleting ACLs", request, DeleteAclsResponse, lambda r: [result.error_code for result in r.filter_results]
        )
        if len(reply.filter_results) != len(chosen):
            raise BadReply(f"{len(chosen)} filters were given, and the answer is about {len(reply.filter_results)}")
        deleted: Outcomes[AclFilter, list[Acl]] = Outcomes()
        for wanted, result in zip(chosen, reply.filter_results, strict=True):
            gone: list[Acl] = []
            for each in result.matching_acls:
                check(each.error_code, each.error_message, f"{each.principal} on {each.resource_name}")
                gone.append(_acl(each, each))
            deleted[wanted] = outcome_of(result.error_code, result.error_message, "deleting ACLs", gone)
        return deleted


def _acl(resource: DescribeAclsResource | DeleteAclsMatchingAcl, rule: AclDescription | DeleteAclsMatchingAcl) -> Acl:
    """One answer has the resource beside the rule, the other both in one."""
    return Acl(
        _known(ResourceType, resource.resource_type),
        resource.resource_name,
        rule.principal,
        _known(AclOperation, rule.operation),
        _known(AclPermission, rule.permission_type),
        rule.host,
        _known(PatternType, resource.pattern_type),
    )


def _known(kind: type[E], number: int) -> E:
    """Numbers newer than this client count as UNKNOWN."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
