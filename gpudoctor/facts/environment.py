"""The environment variables that change how a training job runs."""

from gpudoctor.facts.base import Subject


class Environment(Subject, frozen=True, kw_only=True):
    """Only variables of known prefixes are taken, so that no secret enters a snapshot."""

    variables: dict[str, str] = {}
    """Of this process, by name: CUDA_*, NVIDIA_*, NCCL_*, TORCH*, GLOO_*, OMP_*, RANK and its kin, SLURM_*, …"""
    nccl_config: dict[str, str] = {}
    """NCCL variables from /etc/nccl.conf and ~/.nccl.conf (or NCCL_CONF_FILE); the environment wins over them."""
    undecodable: tuple[str, ...] = ()
    """Names of taken variables whose value is not UTF-8; what could not be decoded stands as U+FFFD in it."""

    def get(self, name: str) -> str | None:
        """Value of a variable, from the environment and else from NCCL's configuration files."""
        return self.variables.get(name, self.nccl_config.get(name))

    def number(self, name: str) -> int | None:
        """Value of a variable as a whole number; None where it is unset or is none."""
        try:
            return int(self.variables[name])
        except (KeyError, ValueError):
            return None

    @property
    def nodes(self) -> int | None:
        """Nodes of the job, from the launcher's variables; None where they do not tell."""
        for world_name, local_name in (
            ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
            ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ):
            # WHY first: a job on one node of a larger Slurm allocation is a job of one node.
            world, local = self.number(world_name), self.number(local_name)
            if world and local and local > 0:
                return -(-world // local)
        for name in (
            "GROUP_WORLD_SIZE",
            "SLURM_STEP_NUM_NODES",
            "SLURM_JOB_NUM_NODES",
            "SLURM_NNODES",
            "OMPI_MCA_orte_num_nodes",
            "PET_NNODES",
        ):
            if (count := self.number(name)) is not None:
                return count
        return None

    @property
    def launched(self) -> bool:
        """A launcher's or a scheduler's variables are set: a distributed job is meant."""
        return any(
            name in self.variables
            for name in ("WORLD_SIZE", "MASTER_ADDR", "SLURM_JOB_ID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PET_NNODES")
        )
