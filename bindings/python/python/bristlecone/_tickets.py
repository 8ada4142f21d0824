"""Waiting for tickets in an event loop."""

from __future__ import annotations

import asyncio

from ._bristlecone import Ticket


async def wait(ticket: Ticket) -> None:
    """Waits until the writes of a ticket are durable, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    while True:
        woken: asyncio.Future[None] = loop.create_future()

        def end(woken: asyncio.Future[None] = woken) -> None:
            if not woken.done():
                woken.set_result(None)

        def wake() -> None:
            # From the thread that syncs. The loop may be closed by now.
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)

        if ticket._poll(wake):
            return
        await woken
