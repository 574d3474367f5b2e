"""The federation of processes on NVIDIA FLARE. Everything that knows of FLARE is in this folder.

========================  =============================================================================================
`plan`, `kits`            who takes part; the folders that let each party take part
`processes`, `serve`      FLARE's processes, and the rules fmtc adds inside them
`adapter`                 the two ends of a job, at the coordinator and in a silo
`supervise`               the coordinator's part: a run seen through from job to job
`membership`              a silo's part
`local`                   a whole federation on this machine, of files or arrays
`doctor`                  what may keep a machine from a federation: itself, its kit, the way to the coordinator
`compat`                  every part of FLARE that is used or replaced
========================  =============================================================================================
"""
