"""Settings of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client import descriptions
from tidelog.client.administration.asking import Asking
from tidelog.client.errors import BadReply, check
from tidelog.wire.messages import alter_configs, incremental_alter_configs
from tidelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.client.descriptions import ConfigEntry, ConfigResource

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class ConfigAdmin(Asking):
    async def describe_configs(self, resource: ConfigResource, keys: Sequence[str] | None = None) -> list[ConfigEntry]:
        """All settings of a topic, a broker or a group, or those named, by name."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        reply = await self._ask(resource.broker, "describing settings", request, DescribeConfigsResponse)
        if len(reply.results) != 1:
            raise BadReply(f"{resource}: the broker's answer leaves it out")
        result = reply.results[0]
        check(result.error_code, result.error_message, str(resource))
        return sorted((descriptions.config_entry(entry) for entry in result.configs), key=lambda entry: entry.name)

    async def alter_configs(
        self,
        resource: ConfigResource,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the word for it
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes the settings named and leaves the others as they are; a deleted one goes back to its default.

        `append` and `subtract` are for settings that are lists, and take items separated by commas.
        """
        wanted: list[tuple[int, str, str | None]] = [(_DELETE, name, None) for name in delete]
        for operation, values in ((_SET, set), (_APPEND, append), (_SUBTRACT, subtract)):
            wanted += [(operation, name, value) for name, value in (values or {}).items()]
        request = IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
                        for operation, name, value in wanted
                    ],
                )
            ],
            validate_only=validate_only,
        )
        what = "changing settings"
        if resource.broker is not None:
            reply = await self._ask(resource.broker, what, request, IncrementalAlterConfigsResponse)
        else:
            reply = await self._ask_controller(
                what, request, IncrementalAlterConfigsResponse, lambda r: [each.error_code for each in r.responses]
            )
        for response in reply.responses:
            check(response.error_code, response.error_message, str(resource))

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Leaves the resource with these settings alone; whatever else was set goes back to its default."""
        request = AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[alter_configs.AlterableConfig(name=name, value=value) for name, value in configs.items()],
                )
            ],
            validate_only=validate_only,
        )
        what = "replacing settings"
        if resource.broker is not None:
            reply = await self._ask(resource.broker, what, request, AlterConfigsResponse)
        else:
            reply = await self._ask_controller(
                what, request, AlterConfigsResponse, lambda r: [each.error_code for each in r.responses]
            )
        for response in reply.responses:
            check(response.error_code, response.error_message, str(resource))
