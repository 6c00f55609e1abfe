"""The shadow cache on Valkey or Redis: one server, or a cluster behind the same code.

A script on the server compares and sets a record as one step. Beside the record lies its order,
which outlives it as a tombstone. The names of nodes are in another hash slot, by the time of their
last mention: a name is a hint to be checked, never the truth, and one that nobody mentions any more
leaves by itself.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from redis.exceptions import NoScriptError

from axiom_common.drivers.redis_shards import AWAY, Answer, Command, shards_of
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.shadow_cache import MENTION_MS, Put, PutOutcome
from axiom_common.state.region_view import TOMBSTONE_MS
from axiom_common.wire import keys

CALL_TIMEOUT_S = 0.5
READ_BATCH = 256
MENTION_BATCH = 512
ATTEMPTS = 2
"""A call that finds a script or a slot gone from where it was is sent once more."""

# KEYS: record, order. ARGV: incarnation, seq, record, its ttl and the order's in ms. 1 when stored.
_PUT = """
local known = redis.call('GET', KEYS[2])
if known then
  local at = string.find(known, ':', 1, true)
  local incarnation, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
  local old, old_seq = tonumber(string.sub(known, 1, at - 1)), tonumber(string.sub(known, at + 1))
  if incarnation < old or (incarnation == old and seq <= old_seq) then return 0 end
end
redis.call('SET', KEYS[2], ARGV[1] .. ':' .. ARGV[2], 'PX', ARGV[5])
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1
"""
# KEYS: names. ARGV: how long a mention lasts in ms, then nodes.
_MENTION = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], now_ms, ARGV[at]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms - ARGV[1])
return 1
"""


def _sha(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


_SCRIPTS = {_sha(script): script for script in (_PUT, _MENTION)}
_PUT_SHA, _MENTION_SHA = _SCRIPTS


class RedisShadowCache:
    """A `ShadowCache`. Connects on first use, and again after each loss.

    `url`: see `redis_shards.shards_of`.
    """

    def __init__(
        self, url: str, region: RegionId, *, call_timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self._region = region
        self._shards = shards_of(url, call_timeout_s)

    @property
    def region(self) -> RegionId:
        """The region whose nodes are kept here."""
        return self._region

    def shard(self, node: NodeId) -> str:
        """The server that holds all of the node."""
        return self._shards.shard(keys.shadow_record(self._region, node))

    async def put_if_newer(self, puts: Sequence[Put]) -> tuple[PutOutcome, ...]:
        """One pipeline a shard."""
        answers = await self._call([self._put(put) for put in puts])
        return tuple(_outcome(answer) for answer in answers)

    async def mention(self, nodes: Sequence[NodeId]) -> None:
        """One call for many."""
        key = keys.shadow_names(self._region)
        for start in range(0, max(1, len(nodes)), MENTION_BATCH):
            batch = nodes[start : start + MENTION_BATCH]
            await self._ask([("EVALSHA", _MENTION_SHA, 1, key, MENTION_MS, *batch)])

    async def read_all(self) -> tuple[bytes, ...]:
        """All live records, read in batches."""
        [names] = await self._ask([("ZRANGE", keys.shadow_names(self._region), 0, -1)])
        nodes = [NodeId(name.decode()) for name in names]
        records: list[bytes] = []
        for start in range(0, len(nodes), READ_BATCH):
            batch = nodes[start : start + READ_BATCH]
            found = await self._ask(
                [("GET", keys.shadow_record(self._region, node)) for node in batch]
            )
            records += [record for record in found if record is not None]
        return tuple(records)

    async def ping(self) -> None:
        """Ask whether the shard of the names is there."""
        await self._ask([("EXISTS", keys.shadow_names(self._region))])

    async def close(self) -> None:
        """Let go of all connections."""
        await self._shards.close()

    def _put(self, put: Put) -> Command:
        record = keys.shadow_record(self._region, put.node)
        order = keys.shadow_order(self._region, put.node)
        values = (put.incarnation, put.seq, put.record, put.ttl_ms, TOMBSTONE_MS)
        return ("EVALSHA", _PUT_SHA, 2, record, order, *values)

    async def _ask(self, commands: list[Command]) -> list[Answer]:
        """All answers, or UnavailableError for the first that failed."""
        answers = await self._call(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise _unavailable(answer) from answer
        return answers

    async def _call(self, commands: list[Command]) -> list[Answer]:
        """An answer for each command, in order; an exception is one."""
        answers: list[Answer] = [None] * len(commands)
        left = list(range(len(commands)))
        for _ in range(ATTEMPTS):
            try:
                await self._shards.ready()
            except AWAY as error:
                return [error] * len(commands)
            by_shard: dict[str, list[int]] = defaultdict(list)
            for at in left:
                by_shard[self._shards.shard(_key(commands[at]))].append(at)
            for shard, places in by_shard.items():
                sent = [_taught(commands[at], answers[at]) for at in places]
                for at, answer in zip(places, await self._shards.send(shard, sent), strict=True):
                    answers[at] = answer
            left = [at for at in left if isinstance(answers[at], Exception)]
            if not left:
                break
        return answers


def _key(command: Command) -> str:
    """The key that says where a command goes: all keys of one lie in one slot."""
    return str(command[3] if command[0] == "EVALSHA" else command[1])


def _taught(command: Command, last: Answer) -> Command:
    """The script itself to a server that doesn't know it, or no more: that teaches it."""
    if isinstance(last, NoScriptError):
        return ("EVAL", _SCRIPTS[str(command[1])], *command[2:])
    return command


def _outcome(answer: Answer) -> PutOutcome:
    return _unavailable(answer) if isinstance(answer, Exception) else bool(answer)


def _unavailable(error: Exception) -> UnavailableError:
    return UnavailableError(f"shadow cache: {error or type(error).__name__}")
