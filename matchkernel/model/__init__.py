from matchkernel.storage.extras import need

need("torch", "torch", "everything but matching photos on a CPU")
