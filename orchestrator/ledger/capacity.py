"""What is free on every node, indexed so that best fit is a look-up.

Comes in: nodes with their devices, what attempts take and give back. Goes out: free device masks, cores, memory,
and per pool the open nodes in buckets by their number of free devices. Called by: Statement and apply (change it),
scheduler (looks things up). A node is *open* while it may be given work.

Devices are bits of an integer mask by slot; memory is in bytes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass


@dataclass(slots=True)
class NodeCapacity:
    """The free part of one node. `order` is its place in the pool, the tie rule of all placement."""

    name: str
    pool: str
    order: int
    total: int = 0  # mask of all its devices
    taken: int = 0  # mask of the devices that somebody holds, also of those that the node does not report now
    free: int = 0  # mask of its devices that nobody holds
    cores: int = 0
    memory: int = 0
    free_cores: int = 0
    free_memory: int = 0
    open: bool = False


class PoolCapacity:
    """The nodes of one pool: all in order, and the open ones in buckets by free devices (sorted by order)."""

    __slots__ = ("buckets", "name", "nodes", "shapes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeCapacity] = []
        self.buckets: list[list[int]] = [[]]
        self.shapes: dict[
            tuple[int, int], int
        ] = {}  # how many nodes have so many cores and bytes; 0: not known

    def enter(self, node: NodeCapacity) -> None:
        """Put an open node into the bucket of its free devices."""
        count = node.free.bit_count()
        while len(self.buckets) <= count:
            self.buckets.append([])
        insort(self.buckets[count], node.order)

    def leave(self, node: NodeCapacity) -> None:
        """Take an open node out of its bucket."""
        bucket = self.buckets[node.free.bit_count()]
        del bucket[bisect_left(bucket, node.order)]

    def count_shape(self, shape: tuple[int, int], change: int) -> None:
        """One node more or less has these cores and bytes."""
        left = self.shapes.get(shape, 0) + change
        if left:
            self.shapes[shape] = left
        else:
            del self.shapes[shape]


class Capacity:
    """All nodes by name and by pool."""

    __slots__ = ("nodes", "pools")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeCapacity] = {}
        self.pools: dict[str, PoolCapacity] = {}

    def add(self, name: str, pool: str) -> NodeCapacity:
        """A new node at the end of its pool, closed and without devices."""
        home = self.pools.setdefault(pool, PoolCapacity(pool))
        node = NodeCapacity(name, pool, len(home.nodes))
        home.nodes.append(node)
        home.count_shape((0, 0), 1)
        self.nodes[name] = node
        return node

    def set_open(self, name: str, is_open: bool) -> None:
        """Whether the node may be given work from now on."""
        node = self.nodes[name]
        if node.open == is_open:
            return
        pool = self.pools[node.pool]
        if is_open:
            pool.enter(node)
        else:
            pool.leave(node)
        node.open = is_open

    def resize(self, name: str, total: int, cores: int, memory: int) -> None:
        """The node turned out to have these devices, cores and bytes; what is taken of them stays taken."""
        node = self.nodes[name]
        was_open = node.open
        self.set_open(name, False)
        node.free_cores += cores - node.cores
        node.free_memory += memory - node.memory
        pool = self.pools[node.pool]
        pool.count_shape((node.cores, node.memory), -1)
        pool.count_shape((cores, memory), 1)
        node.total, node.cores, node.memory = total, cores, memory
        node.free = total & ~node.taken
        self.set_open(name, was_open)

    def take(self, name: str, mask: int, cores: int, memory: int) -> None:
        """Take devices, cores and bytes; ValueError if one of the devices is not free."""
        node = self.nodes[name]
        if mask & ~node.free:
            raise ValueError(f"node {name}: devices {mask & ~node.free:#b} are not free")
        self.hold(name, mask, cores, memory)

    def hold(self, name: str, mask: int, cores: int, memory: int) -> None:
        """Take for work that runs already, also devices that the node does not report; ValueError if one is held."""
        node = self.nodes[name]
        if mask & node.taken:
            raise ValueError(f"node {name}: devices {mask & node.taken:#b} are held already")
        self._change(node, node.taken | mask)
        node.free_cores -= cores
        node.free_memory -= memory

    def release(self, name: str, mask: int, cores: int, memory: int) -> None:
        """Give back; ValueError if nobody held one of the devices. Devices that are gone stay gone."""
        node = self.nodes[name]
        if mask & ~node.taken:
            raise ValueError(f"node {name}: devices {mask & ~node.taken:#b} were not held")
        self._change(node, node.taken & ~mask)
        node.free_cores += cores
        node.free_memory += memory

    def _change(self, node: NodeCapacity, taken: int) -> None:
        node.taken, free = taken, node.total & ~taken
        if not node.open or free == node.free:
            node.free = free
            return
        pool = self.pools[node.pool]
        pool.leave(node)
        node.free = free
        pool.enter(node)


def mask_of(slots: tuple[int, ...]) -> int:
    """Slots -> mask."""
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The `count` lowest set slots of a mask (which has at least as many)."""
    slots: list[int] = []
    while len(slots) < count:
        bit = mask & -mask
        slots.append(bit.bit_length() - 1)
        mask ^= bit
    return tuple(slots)
