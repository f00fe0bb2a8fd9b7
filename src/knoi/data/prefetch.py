"""An iterator whose items are made ahead of their use, in a background thread."""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
# Called by a producer between pieces of long work: True if the consumer has stopped.
Stopped = Callable[[], bool]

# A wait without a timeout cannot be interrupted by Ctrl-C on every platform.
_WAIT_SECONDS = 0.5


class Prefetcher(Generic[Item]):
    """Iterate over what `produce` yields, made up to `depth` items ahead in a thread.

    Finished and unfinished items never exceed `depth`, so with the item in use at most `depth + 1`
    are in memory. An error in the thread is raised in the consumer, unchanged, after the items made
    before it. `close` (or leaving a `with` block) ends the thread and waits for it; deleting the
    iterator ends its thread, too.

    Parameters
    ----------
    produce : callable
        Called in the thread with a predicate, returns the iterator to run. Long work calls the
        predicate now and then and returns early if it is true.
    depth : int
        Number of items to make ahead.
    """

    def __init__(self, produce: Callable[[Stopped], Iterator[Item]], depth: int) -> None:
        self._shared: _Shared[Item] = _Shared(depth)
        # The thread must not refer to this object, or deleting it would never end the thread.
        self._thread = threading.Thread(
            target=_run, args=(self._shared, produce), name="knoi-prefetch", daemon=True
        )
        self._finalizer = weakref.finalize(self, self._shared.stop)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        return self._shared.take()

    def close(self) -> None:
        """End the thread and wait for it."""
        self._finalizer()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Shared(Generic[Item]):
    """State shared by consumer and thread: finished items, free slots, how it ended."""

    def __init__(self, depth: int) -> None:
        self._changed = threading.Condition()
        self._ready: deque[Item] = deque()
        self._slots = depth
        self._error: BaseException | None = None
        self._ended = False
        self._stopped = False

    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()

    # Called by the consumer.

    def take(self) -> Item:
        with self._changed:
            while not (self._ready or self._ended or self._stopped):
                self._changed.wait(_WAIT_SECONDS)
            if self._ready:
                self._slots += 1
                self._changed.notify_all()
                return self._ready.popleft()
            error, self._error = self._error, None
        if error is not None and not self._stopped:
            raise error
        raise StopIteration

    # Called by the thread.

    def wait_for_slot(self) -> bool:
        """Claim a slot for the next item; False if the consumer has stopped."""
        with self._changed:
            while not (self._slots or self._stopped):
                self._changed.wait()
            self._slots -= 1
            return not self._stopped

    def put(self, item: Item) -> None:
        with self._changed:
            if not self._stopped:
                self._ready.append(item)
            self._changed.notify_all()

    def end(self, error: BaseException | None) -> None:
        with self._changed:
            self._ended = True
            self._error = error
            self._changed.notify_all()


def _run(shared: _Shared[Item], produce: Callable[[Stopped], Iterator[Item]]) -> None:
    failure: BaseException | None = None
    try:
        items = produce(shared.stopped)
        try:
            # Not bound to a name, which would keep the last item in memory while the next one is
            # being made.
            while shared.wait_for_slot():
                shared.put(next(items))
        except StopIteration:
            pass
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
    except BaseException as error:
        failure = error
    shared.end(failure)
