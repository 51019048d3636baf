"""What a change of the file means: for hosts, for running work, for money and power.

Comes in: the wanted, the recorded and the observed cluster, the catalog, the work that runs. Goes out: what hosts must
have (`desired`), what differs (`diff`), and the whole plan (`plan`). Called by: provision, controller, cli. Pure: no
file, no clock, no socket.
"""
