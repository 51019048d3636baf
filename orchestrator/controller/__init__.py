"""The one writer and its loop.

Comes in: commands of people, syncs of agents, time. Goes out: events in the ledger, decisions carried out, a published
view. Called by: api (puts things into the inbox, reads the view), cli `server run` (starts it).
"""
