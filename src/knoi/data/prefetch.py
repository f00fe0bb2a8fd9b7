"""Work one step ahead: an iterator whose items are made in a background thread."""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
# Asked by a producer between pieces of long work: is anyone still waiting for the result?
Stopped = Callable[[], bool]

# A wait without a limit cannot be interrupted by Ctrl-C on every platform.
_WAIT_SECONDS = 0.5


class ReadAhead(Generic[Item]):
    """Iterates over what `produce` yields, made up to `depth` items ahead in a thread.

    Items ready or in the making never exceed `depth`, so with the item in use at most `depth + 1`
    are alive. An error in the thread is raised to the consumer, as it was, after the items made
    before it. `close` (or leaving a `with` block) ends the thread and waits for it; an iterator
    that is merely dropped ends its thread too.

    Parameters
    ----------
    produce : callable
        Called in the thread with a predicate, returns the iterator to run ahead of. Long work asks
        the predicate now and then and returns early when it is true.
    depth : int
        How many items to be ahead.
    """

    def __init__(self, produce: Callable[[Stopped], Iterator[Item]], depth: int) -> None:
        self._shared: _Shared[Item] = _Shared(depth)
        # The thread must not refer to this object, or dropping it would never end the thread.
        self._thread = threading.Thread(
            target=_run_ahead, args=(self._shared, produce), name="knoi-read-ahead", daemon=True
        )
        self._finalizer = weakref.finalize(self, self._shared.stop)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        return self._shared.take()

    def close(self) -> None:
        """End the thread; when this returns nothing is read any more."""
        self._finalizer()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Shared(Generic[Item]):
    """What consumer and thread share: the items ready, the places left, how it ended."""

    def __init__(self, depth: int) -> None:
        self._changed = threading.Condition()
        self._ready: deque[Item] = deque()
        self._places = depth
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

    # The consumer's side.

    def take(self) -> Item:
        with self._changed:
            while not (self._ready or self._ended or self._stopped):
                self._changed.wait(_WAIT_SECONDS)
            if self._ready:
                self._places += 1
                self._changed.notify_all()
                return self._ready.popleft()
            error, self._error = self._error, None
        if error is not None and not self._stopped:
            raise error
        raise StopIteration

    # The thread's side.

    def wait_for_place(self) -> bool:
        """Claim a place for the next item; False when the consumer has gone."""
        with self._changed:
            while not (self._places or self._stopped):
                self._changed.wait()
            self._places -= 1
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


def _run_ahead(shared: _Shared[Item], produce: Callable[[Stopped], Iterator[Item]]) -> None:
    failure: BaseException | None = None
    try:
        items = produce(shared.stopped)
        try:
            # Never bound to a name here: a name would keep the last item alive while the next one
            # is being made.
            while shared.wait_for_place():
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
